"""A violation that was planted in records is found with its factor, and none is where there is noise only."""

import numpy as np
import pytest

from mpi_allreduce.__main__ import main
from mpi_allreduce.bench import records
from mpi_allreduce.tuning.guidelines import advice, check, read_scopes

CASE = {
    "dtype": "float32", "op": "SUM", "codec": "none", "memory": "host", "mode": "isolated", "skew": "none",
    "data": "normal", "in_place": False, "ranks": 4, "buffers": 1, "wrong": 0, "error": 0.0, "identical": True,
    "repeatable": True, "native_op": True, "warmups": 3, "ended_by": "interval", "pass": 0, "rounds": 6,
    "sent_bytes": 1,
}  # fmt: skip
ENVIRONMENT = {
    "started": "2026-01-01T00:00:00+00:00", "ranks": 4, "hosts": {"a": 2, "b": 2},
    "host_of_rank": ["a", "a", "b", "b"], "cpus_of_rank": ["0-1"] * 4, "mpi_library": "MPICH Version:      5.0.2\n",
}  # fmt: skip
TWO_CALLS = ("vendor_reduce_bcast", "vendor_reduce_scatter_allgather")
NAMES = ("vendor", *TWO_CALLS, "ring", "circulant")
SIZES = (1024, 4096, 16384, 65536)
PLANTED = {  # microseconds instead of those of a library that keeps all guidelines
    "G1": ({("vendor_reduce_bcast", 4096): 20.0}, 4096, "vendor_reduce_bcast", 2.0, 'algorithm="vendor_reduce_bcast"'),
    "G2": ({(TWO_CALLS[1], 16384): 64.0}, 16384, TWO_CALLS[1], 2.5, f'algorithm="{TWO_CALLS[1]}"'),
    "G3": ({("ring", 65536): 160.0, ("circulant", 65536): 256.0}, 65536, "ring", 4.0, 'algorithm="ring"'),
    "G4": ({("vendor", 1024): 80.0, **{(n, 1024): 90.0 for n in NAMES[1:]}}, 1024, "vendor at 4 KiB", 2.0, "pad to 4"),
    "G5": (
        {("vendor", 65536): 960.0, **{(n, 65536): 990.0 for n in NAMES[1:]}}, 65536, "4 x vendor at 16 KiB", 1.5,
        "calls of 16 KiB",
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _written_once(monkeypatch):
    """Not behind each visit: a launch takes a tenth of a second, and so would each of its visits."""
    monkeypatch.setattr(records, "CHEAP_SECONDS", 0.0)
    monkeypatch.setattr(records, "FLUSH_RATIO", float("inf"))


def record(path, planted=None, names=NAMES, noise=0.0, visits=8, launches=1, seed=1, **changes):
    """A library that takes 10 us a KiB (a large message no less than its parts), the others 30 % more."""
    random = np.random.default_rng(seed)
    for launch in range(launches):
        machine = 1 + launch / 10  # launches differ by more than algorithms do
        recorder = records.Recorder(path, ENVIRONMENT | {"started": f"2026-01-{launch + 1:02}"}, {"ci": 0.03})
        for name in names:
            for size in SIZES:
                time = size / 1024 * 10.0 * (1 if name == "vendor" else 1.3)
                time = (planted or {}).get((name, size), time) * machine * 1e-6
                for _ in range(visits):
                    times = time * (1 + noise * random.standard_normal((7, 1))) * np.ones((1, 4))
                    recorder.add({**CASE, "algorithm": name, "bytes": size, **changes}, times)
        recorder.finish()
    return path


def report_of(path, **options):
    ((scope, sizes),) = read_scopes([path]).items()
    return check(scope, sizes, **options)


@pytest.mark.parametrize(("name", "launches"), [*((name, 1) for name in PLANTED), ("G1", 3), ("G3", 7), ("G5", 7)])
def test_a_planted_violation_is_found_with_its_factor_and_no_other(tmp_path, name, launches):
    planted, size, bound, factor, instead = PLANTED[name]
    report = report_of(record(tmp_path / "r.h5", planted, noise=0.01, launches=launches))
    (found,) = [comparison for comparison in report.comparisons if comparison.sure]
    assert (found.guideline.name, found.bytes, found.bound.beside(size)) == (name, size, bound)
    assert found.factor == pytest.approx(factor, rel=0.02)
    assert found.low <= factor <= found.high
    assert found.launches == launches
    assert instead in advice(found, report)
    assert not report.unmeasured


@pytest.mark.parametrize(("seed", "launches"), [*((seed, 1) for seed in range(5)), (5, 2), (6, 2), (7, 7)])
def test_noise_within_the_band_is_no_sure_violation(tmp_path, seed, launches):
    """All as fast as each other, at all sizes; single repetitions are off by more than a tie."""
    same = {(name, size): 10.0 for name in NAMES for size in SIZES}
    path = record(tmp_path / "r.h5", same, noise=0.04, launches=launches, seed=seed)
    assert not any(comparison.sure for comparison in report_of(path).comparisons)


def test_few_visits_prove_nothing_and_a_wider_band_forgives(tmp_path):
    planted = PLANTED["G1"][0]
    few = report_of(record(tmp_path / "few.h5", planted, visits=5))
    assert [(c.guideline.name, c.sure) for c in few.comparisons if c.violated] == [("G1", False)]
    assert all(comparison.undecided != comparison.violated for comparison in few.comparisons)
    many = report_of(record(tmp_path / "many.h5", planted), tie=1.1)
    assert not any(comparison.violated for comparison in many.comparisons)


def test_times_of_different_launches_are_not_compared(tmp_path):
    record(tmp_path / "r.h5", names=("vendor",))
    record(tmp_path / "r.h5", {("ring", 1024): 1.0}, names=("ring",), seed=2)
    report = report_of(tmp_path / "r.h5")
    assert {comparison.guideline.name for comparison in report.comparisons} == {"G4", "G5"}


def test_what_cannot_be_compared_is_said_and_only_sure_violations_are_strict(tmp_path, capsys):
    right = record(tmp_path / "right.h5", names=("vendor", "ring", "auto"))
    assert main(["guidelines", str(right), "--strict"]) == 0
    out = capsys.readouterr().out
    assert "Not compared: G1 at 1 KiB, 4 KiB, 16 KiB, 64 KiB" in out
    assert "0 of 10 comparisons violate" in out  # 4 with the ring, 3 with more bytes, 3 with fewer
    assert "8 were not possible" in out

    slow = record(tmp_path / "slow.h5", PLANTED["G3"][0])
    assert main(["guidelines", str(slow)]) == 0
    assert main(["guidelines", str(right), str(slow), "--strict"]) == 1
    out = capsys.readouterr().out
    assert "ring, circulant (2.50)" in out
    assert "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM" in out
    assert main(["guidelines", str(slow), "--strict", "--tie", "4"]) == 0
    unsure = record(tmp_path / "unsure.h5", PLANTED["G3"][0], visits=3)
    assert main(["guidelines", str(unsure), "--strict"]) == 0
    assert "not sure" in capsys.readouterr().out


@pytest.mark.parametrize("changes", [{"wrong": 1}, {"skew": "late:1"}, {"codec": "fp16"}])
def test_what_is_wrong_skewed_or_lossy_bounds_nothing(tmp_path, changes):
    assert not read_scopes([record(tmp_path / "r.h5", **changes)])


def test_bad_usage_is_told(tmp_path, capsys):
    (tmp_path / "x.h5").write_text("nothing")
    assert main(["guidelines", str(tmp_path / "x.h5")]) == 2
    assert main(["guidelines", str(tmp_path / "x.h5"), "--tie", "nan"]) == 2
    err = capsys.readouterr().err
    assert "x.h5" in err
    assert "--tie: expected a fraction" in err
