"""A slowdown is found, noise is not, and too few samples are said to be too few."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from compare import _critical, changes, corrected, main
from material import load
from scipy.stats import mannwhitneyu

from tests.analysis.launches import in_memory, record

TIMES = {(name, size): (1 + size / 4096) * 1e-5 for name in ("vendor", "ring", "circulant") for size in (1024, 1 << 20)}


def scaled(factor, name="ring", size=1 << 20):
    return {**TIMES, (name, size): TIMES[name, size] * factor}


@pytest.mark.parametrize(("launches", "visits", "unit"), [(8, 3, "launches"), (1, 10, "visits")])
@pytest.mark.parametrize(
    ("factor", "verdict", "status"), [(1.2, "slower", 1), (1.01, "tie", 0), (0.8, "faster", 0), (1.0, "tie", 0)]
)
def test_a_planted_change_is_found_and_noise_is_not(tmp_path, capsys, launches, visits, unit, factor, verdict, status):
    how = {"launches": launches, "visits": visits, "noise": 0.004, "between": 0.004 if launches > 1 else 0}
    old = record(tmp_path / "old.h5", TIMES, seed=1, **how)
    new = record(tmp_path / "new.h5", scaled(factor), seed=2, **how)
    found = {(c.case.algorithm, c.case.bytes): c for c in corrected(changes(load([old]), load([new])))}
    planted = found.pop(("ring", 1 << 20))
    assert (planted.verdict, planted.unit) == (verdict, unit)
    assert planted.low <= planted.ratio <= planted.high
    assert planted.ratio == pytest.approx(factor, rel=0.02)
    assert {change.verdict for change in found.values()} == {"tie"}
    assert main([str(old), "--with", str(new)]) == status
    out = capsys.readouterr().out
    assert ("A side has a single launch" in out) == (unit == "visits")
    assert "Too few" not in out
    assert f"{verdict == 'slower':d} of 6 cases are surely slower" in out


def test_too_few_launches_are_said_to_be_too_few(tmp_path, capsys):
    """Three against three: no arrangement of twice its time has p below 2/20."""
    old = record(tmp_path / "old.h5", TIMES, launches=3)
    new = record(tmp_path / "new.h5", scaled(2.0), launches=3, seed=2)
    assert main([str(old), "--with", str(new)]) == 0
    out = capsys.readouterr().out
    assert "Too few launches for the test ever to tell slower from faster in 6 cases: it takes 5 before" in out
    assert "too few" in out
    assert "not sure" in out


def test_a_machine_that_became_slower_is_told_by_the_vendor(tmp_path, capsys):
    old = record(tmp_path / "old.h5", TIMES, launches=8)
    new = record(tmp_path / "new.h5", {case: 1.5 * time for case, time in TIMES.items()}, launches=8, seed=2)
    assert main([str(old), "--with", str(new)]) == 1
    assert "MPI_Allreduce, too, takes 1.5" in capsys.readouterr().out


def test_setups_are_not_mixed_and_bad_input_is_status_2(tmp_path, capsys):
    old = record(tmp_path / "old.h5", TIMES)
    other = {"mpi_library": "Open MPI v5.0.1, x", "ranks": 4}
    new = record(tmp_path / "new.h5", TIMES, environment=other)
    assert main([str(old), "--with", str(new)]) == 2
    told = capsys.readouterr()
    assert "only in the old: 4 ranks, 1 x 4, MPICH 5.0.2" in told.out
    assert "no case of one setup in common" in told.err
    program = Path(__file__).parents[2] / "analysis" / "compare.py"
    done = subprocess.run(
        [sys.executable, program, old, "--with", tmp_path / "none.h5"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "none.h5: there is no such file" in done.stderr) == (2, True)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (3, 4), (5, 5), (4, 9), (8, 8), (30, 25)])
def test_the_interval_is_that_of_the_test(n, m):
    """Ratios outside the interval are those that the test rejects at 5 %."""
    random = np.random.default_rng(n)
    old, new = random.standard_normal(n), random.standard_normal(m) + 0.4
    shifts = np.sort((new[:, None] - old[None, :]).ravel())
    k = _critical(n, m)

    def p(shift):
        return mannwhitneyu(new - shift, old, method="exact").pvalue

    if k == 0:
        assert p(shifts[0] - 1e-9) > 0.05
    else:
        assert p(shifts[k - 1] - 1e-9) <= 0.05 < p(shifts[k - 1] + 1e-9)
        assert p(shifts[-k] + 1e-9) <= 0.05 < p(shifts[-k] - 1e-9)


def test_false_alarms_are_as_rare_as_promised():
    """Nothing changed in 100 comparisons of 6 cases, with noise far beyond the tie band."""
    alarms = 0
    for seed in range(100):
        old, new = (in_memory(TIMES, launches=1, visits=8, noise=0.2, seed=2 * seed + side) for side in (0, 1))
        alarms += any(change.verdict in ("slower", "faster") for change in corrected(changes(old, new)))
    assert alarms <= 10
