"""The numbers of a known machine come back from records of it; where they cannot be told apart, that is said."""

import json
import re

import numpy as np
import pytest

from mpi_allreduce.__main__ import main
from mpi_allreduce.algorithms import get
from mpi_allreduce.bench.probes import Probe
from mpi_allreduce.bench.records import Recorder
from mpi_allreduce.simulate import Flat, Machine, simulate
from mpi_allreduce.tuning.fitting import Sample, fit_machine, samples

TRUE = Machine(alpha=20e-6, beta=1e-9, gamma=2e-10, eager_bytes=0)
NAMES = ("ring", "binomial_tree", "recursive_doubling", "linear")
CASE = {
    "dtype": "float32", "op": "SUM", "codec": "none", "memory": "host", "mode": "isolated", "skew": "none",
    "data": "normal", "in_place": False, "buffers": 1, "wrong": 0, "error": 0.0, "identical": True, "repeatable": True,
    "native_op": True, "warmups": 3, "ended_by": "interval", "pass": 0, "rounds": 6, "sent_bytes": 1,
}  # fmt: skip


def record(path, sizes=(16384, 65536, 1 << 20), ranks=4, algorithms=NAMES, noise=0.03):
    environment = {
        "started": "2026-01-01T00:00:00+00:00", "ranks": ranks, "hosts": {f"h{r}": 1 for r in range(ranks)},
        "mpi_library": "MPICH Version:      5.0.2\n",
    }  # fmt: skip
    random = np.random.default_rng(ranks)
    recorder = Recorder(path, environment, {"ci": 0.03})
    for name in algorithms:
        for size in sizes:
            seconds = simulate(get(name), ranks, size, TRUE, Flat(ranks)).seconds
            for _ in range(4):
                times = seconds * (1 + noise * random.standard_normal((7, 1))) * np.ones((1, ranks))
                recorder.add({**CASE, "algorithm": name, "bytes": size, "ranks": ranks}, times)
    recorder.add({**CASE, "algorithm": "vendor", "bytes": 4, "ranks": ranks}, np.full((7, ranks), 1e-6))
    recorder.add({**CASE, "algorithm": "ring", "bytes": 4, "ranks": ranks, "wrong": 1}, np.full((7, ranks), 1.0))
    recorder.finish()
    return path


def test_a_known_machine_comes_back_and_predicts_what_it_was_not_fitted_to(tmp_path, capsys):
    known, other = record(tmp_path / "4.h5"), record(tmp_path / "7.h5", ranks=7)
    out = tmp_path / "m.json"
    assert main(["fit", str(known), "--test", str(other), "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    for name in ("alpha", "beta", "gamma"):
        low, high = found["intervals"][name]
        assert low <= found[name] <= high
        assert found[name] == pytest.approx(getattr(TRUE, name), rel=0.1 if name != "gamma" else 0.5)
    assert Machine.load(out).beta == found["beta"]
    fitted, predicted = capsys.readouterr().out.split("Predicted, not fitted")
    assert f"{len(NAMES) * 3} cases; fitted to MPICH 5.0.2" in fitted
    assert "100% within 20 %" in predicted
    assert len(re.findall(r"^ +7 ", predicted, re.MULTILINE)) == len(NAMES) * 3
    assert main(["simulate", "--machine", str(out), "--ranks", "4", "--sizes", "1M", "--algorithms", "ring"]) == 0


def test_what_cannot_be_told_apart_is_not_made_up(tmp_path):
    """The ring reduces half of what it sends: bandwidth and reductions are one number then."""
    cases = samples([record(tmp_path / "r.h5", algorithms=("ring", "circulant"), noise=0)])
    fit = fit_machine(cases)
    assert fit.machine.gamma == 0
    assert fit.machine.beta == pytest.approx(TRUE.beta + TRUE.gamma / 2, rel=1e-3)
    with pytest.raises(ValueError, match="do not tell latency and bandwidth apart"):
        fit_machine([case for case in cases if case.bytes == 16384 and case.algorithm == "ring"] * 9)
    with pytest.raises(ValueError, match="with one rank on each node or on one node only"):
        fit_machine([Sample("ring", 4096, 8, 2, 1e-3, "MPICH")] * 9)
    with pytest.raises(ValueError, match="MPICH and Open MPI; fit one library"):
        fit_machine([Sample("ring", 4096, 8, 1, 1e-3, library) for library in ("MPICH", "Open MPI")])


LOGGP = {"L": 7e-6, "o": 2e-6, "g": 5e-6, "G": 3e-9}


def timed(place, alpha, beta):
    """What would be measured there, without noise but in one repetition of five."""
    spread = np.array([1, 1, 1, 1, 1.5])
    latency, overhead, gap, per_byte = LOGGP.values()
    found = [Probe("exchange", place, n, 1, 0.0, (alpha + beta * n) * spread) for n in (8, 1024, 65536, 1 << 20)]
    for n in (8, 1024, 65536):
        trip, delay = 2 * (latency + 2 * overhead), 1e-3
        found.append(Probe("train", place, n, 1, 0.0, trip * spread))
        found.append(Probe("train", place, n, 8, 0.0, trip * spread + 7 * (gap + per_byte * n)))
        found.append(Probe("train", place, n, 8, delay, trip * spread + 7 * (overhead + delay)))
    return found


def test_where_the_sweep_cannot_tell_what_was_timed_alone_does(tmp_path, capsys):
    """Two ranks on each of two nodes: the network's numbers and the node's are those of exchanges between two ranks."""
    environment = {"started": "2026-01-01T00:00:00+00:00", "ranks": 4, "hosts": {"a": 2, "b": 2},
                   "mpi_library": "MPICH Version:      5.0.2\n"}  # fmt: skip
    path, out = tmp_path / "2x2.h5", tmp_path / "m.json"
    recorder = Recorder(path, environment, {"ci": 0.03})
    truth = Machine(30e-6, 2e-9, 4e-10, 3e-6, 1e-10)
    recorder.add_probes([
        *timed("network", truth.alpha, truth.beta), *timed("node", truth.local_alpha, truth.local_beta),
        *(Probe("add", "cores", n, 1, 0.0, np.full(5, 1e-6 + truth.gamma * n)) for n in (4096, 1 << 20)),
    ])  # fmt: skip
    for size in (65536, 1 << 20):
        seconds = simulate(get("ring"), 4, size, truth, Flat(2), 2).seconds
        recorder.add({**CASE, "algorithm": "ring", "bytes": size, "ranks": 4}, np.full((7, 4), seconds))
    recorder.finish()
    assert main(["fit", str(path), "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    for name in ("alpha", "beta", "gamma", "local_alpha", "local_beta"):
        assert found[name] == pytest.approx(getattr(truth, name), rel=0.01)
        assert found["sources"][name] == ("additions" if name == "gamma" else "exchanges")
    for name, value in LOGGP.items():
        assert found["loggp"]["network"][name]["value"] == pytest.approx(value, rel=0.01)
    shown = capsys.readouterr().out
    assert "LogGOPSim: -L 7000 -o 2000 -g 5000 -G 3\n" in shown
    assert "100% within 20 %" in shown


def test_additions_timed_alone_tell_reductions_from_bytes_where_the_sweep_does_not(tmp_path):
    cases = samples([record(tmp_path / "r.h5", algorithms=("ring", "circulant"), noise=0)])
    added = [{"kind": "add", "place": "cores", "bytes": n, "messages": 1, "delay": 0.0,
              "seconds": np.full(5, 1e-6 + TRUE.gamma * n)} for n in (4096, 1 << 20)]  # fmt: skip
    fit = fit_machine(cases, [added])
    assert fit.machine.gamma == pytest.approx(TRUE.gamma)
    assert fit.machine.beta == pytest.approx(TRUE.beta, rel=1e-3)


def test_a_record_without_cases_is_an_error(tmp_path, capsys):
    path = record(tmp_path / "e.h5", algorithms=())
    assert main(["fit", str(path)]) == 2
    assert "fit: 0 cases do not tell" in capsys.readouterr().err
