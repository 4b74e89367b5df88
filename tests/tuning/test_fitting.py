"""The numbers of a known machine come back from records of it; where they cannot be told apart, that is said."""

import json
import re

import numpy as np
import pytest

from mpi_allreduce.__main__ import main
from mpi_allreduce.algorithms import get
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
    assert f"{len(NAMES) * 3} cases, MPICH 5.0.2" in fitted
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
    with pytest.raises(ValueError, match="several ranks on each of several nodes"):
        fit_machine([Sample("ring", 4096, 8, 2, 1e-3, "MPICH")] * 9)


def test_a_record_without_cases_is_an_error(tmp_path, capsys):
    path = record(tmp_path / "e.h5", algorithms=())
    assert main(["fit", str(path)]) == 2
    assert "fit: 0 cases do not tell" in capsys.readouterr().err
