"""Where one algorithm overtakes another is found, and the interval says how surely."""

import numpy as np
import pytest
from crossovers import crossing, crossovers
from hypothesis import given
from hypothesis import strategies as st
from material import load

from tests.analysis.launches import in_memory, record

SIZES = [4**k for k in range(5, 13)]
LOW, HIGH = (10e-6, 4e-9), (40e-6, 1e-9)  # alpha, beta: they cross where 10 us + 4 n = 40 us + n, at 10000 bytes;
LEAD = np.log([(HIGH[0] + HIGH[1] * size) / (LOW[0] + LOW[1] * size) for size in SIZES])
TRUE = crossing(LEAD, SIZES)  # interpolated between 4 KiB and 16 KiB, within a per cent of that


def times(*lines):
    return {(name, size): a + b * size for name, (a, b) in lines for size in SIZES}


def test_without_noise_the_crossing_is_where_the_lines_meet():
    assert pytest.approx(10_000, rel=0.01) == TRUE


@pytest.mark.parametrize(("launches", "between"), [(1, 0.0), (5, 0.02)])
def test_a_known_crossover_lies_in_its_interval(tmp_path, launches, between):
    seconds = times(("ring", HIGH), ("recursive_doubling", LOW), ("linear", (1e-3, 1e-8)), ("auto", (1e-6, 0)))
    path = record(tmp_path / "r.h5", seconds, launches=launches, noise=0.02, between=between)
    (found,) = crossovers(load([path]).launches)
    assert (found.below, found.above) == ("recursive_doubling", "ring")
    assert found.low <= TRUE <= found.high
    assert found.high / found.low < 2
    assert found.low <= found.size <= found.high
    assert found.inside == 1


def test_noise_widens_the_interval_beyond_what_was_measured(tmp_path):
    """Two algorithms that are equal but for noise: neither end of the interval is inside."""
    path = record(tmp_path / "r.h5", times(("ring", HIGH), ("circulant", HIGH)), launches=2, visits=3, noise=0.1)
    for found in crossovers(load([path]).launches):
        assert (found.low, found.high) == (0, np.inf)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    """Launches differ by far more than visits here, so that an interval over visits alone would be far too narrow."""
    seconds = times(("ring", HIGH), ("recursive_doubling", LOW))
    covered = 0
    for seed in range(40):
        drawn = in_memory(seconds, launches=6, visits=3, noise=0.002, between=0.1, seed=seed)
        (found,) = crossovers(drawn.launches)
        covered += found.low <= TRUE <= found.high
    assert covered >= 35


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=8))
def test_the_crossing_divides_at_a_change_of_sign(lead):
    sizes = [2**k for k in range(len(lead))]
    size = crossing(np.array(lead), sizes)
    assert size == 0 or np.isinf(size) or sizes[0] <= size <= sizes[-1]
    if 0 < size < np.inf:
        before = max(k for k, value in enumerate(sizes) if value <= size)
        assert lead[before] >= 0 or sizes[before] == size
