"""Summaries of times."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_allreduce.bench.statistics import completion, median_interval, summarise


@pytest.mark.parametrize(
    ("n", "ranks"),
    [(6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (10, (2, 9)), (15, (4, 12)), (20, (6, 15)), (30, (10, 21)), (50, (18, 33))],
)
def test_interval_of_the_median_is_that_of_the_published_tables(n, ranks):
    """Order statistics, counted from 1, of the 95 % interval by the sign test."""
    low, high = median_interval(n)
    assert (low + 1, high + 1) == ranks


@given(n=st.integers(6, 1000))
def test_interval_covers_at_least_95_percent_and_one_step_in_would_not(n):
    def coverage(low):
        return 1 - Fraction(2 * sum(comb(n, k) for k in range(low + 1)), 2**n)

    low, high = median_interval(n)
    assert low + high == n - 1
    assert coverage(low) >= 0.95
    assert coverage(low + 1) < 0.95


@pytest.mark.parametrize("n", [1001, 5000])
def test_interval_of_many_samples_is_at_most_two_steps_wider_than_the_exact_one(n):
    low, high = median_interval(n)
    tails = [Fraction(sum(comb(n, k) for k in range(low + 1 + step)), 2**n) for step in (0, 2)]
    assert low + high == n - 1
    assert tails[0] <= 0.025 <= tails[1]


def test_few_samples_give_their_whole_range():
    assert [median_interval(n) for n in (1, 2, 5)] == [(0, 0), (0, 1), (0, 4)]


def test_a_repetition_takes_as_long_as_its_slowest_rank():
    assert completion(np.array([[1.0, 3.0], [4.0, 2.0]])).tolist() == [3, 4]


def test_with_skew_time_runs_from_the_last_arrival_to_the_last_end():
    seconds = np.array([[12.0, 3.0], [5.0, 4.0]])  # rank 0 came first and waited; then both together
    delays = np.array([[0.0, 10.0], [0.0, 0.0]])
    assert completion(seconds, delays).tolist() == [3, 5]


def test_summary_of_known_times():
    summary = summarise([np.arange(1.0, 102.0)[::-1]])
    assert (summary.repetitions, summary.median, summary.minimum, summary.maximum) == (101, 51, 1, 101)
    assert (summary.low, summary.high) == (41, 61)
    assert (summary.p5, summary.p95, summary.p99) == (6, 96, 100)
    assert summary.half_width == pytest.approx(10 / 51)


def test_interval_of_several_visits_is_that_of_their_medians():
    """Six visits, each sure of itself, disagree: the interval must tell."""
    visits = [np.full(1000, 3.0 + i) for i in (5, 0, 1, 3, 2, 4)]
    visits[0][0] = 100
    summary = summarise(visits)
    assert (summary.repetitions, summary.visits) == (6000, 6)
    assert (summary.low, summary.median, summary.high) == (3, 5.5, 8)
    assert summary.maximum == 100
