"""Crossing sizes are those of the textbook's formulas, whatever sizes were simulated."""

from math import log2

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mpi_allreduce.algorithms import get
from mpi_allreduce.simulate import Flat, Machine, simulate
from mpi_allreduce.simulate.claims import crossing, fastest, textbook

ALPHA, BETA = 1e-5, 1e-9
NAMES = ("binomial_tree", "ring", "linear")
SIZES = (1 << 10, 1 << 16, 1 << 26)


def found(ranks):
    machine = Machine(ALPHA, BETA, 0.0, eager_bytes=0)
    return {(name, p, n): simulate(get(name), p, n, machine, Flat(p)) for name in NAMES for p in ranks for n in SIZES}


def test_tree_and_ring_cross_where_the_formulas_say():
    ranks = (8, 32)
    runs = found(ranks)
    for claim in textbook(runs, NAMES, ranks, SIZES):
        p, lg = claim.ranks, log2(claim.ranks)
        expected = ALPHA * ((p - 1) - lg) / (BETA * (lg - (p - 1) / p))
        assert claim.crossing == pytest.approx(expected, rel=0.01)
        assert claim.small > 1 > claim.large
        assert claim.root == pytest.approx({"binomial_tree": lg, "ring": 2 * (p - 1) / p, "linear": p - 1}, rel=1e-3)
        assert claim.growth == pytest.approx((1 - 1 / p) / (1 - 1 / 8), rel=0.02)
        (first, start), (second, at) = fastest(runs, NAMES[:2], p, SIZES)
        assert (first, start, second) == ("binomial_tree", 1 << 10, "ring")
        assert at == pytest.approx(expected, rel=0.01)


def test_without_tree_or_ring_there_is_no_claim():
    assert textbook({}, ("ring", "linear"), (8,), SIZES) == []


@given(*(st.floats(1e-6, 1e-2) for _ in range(2)), *(st.floats(1e-10, 1e-7) for _ in range(2)))
def test_lines_cross_where_they_are_equal(a, b, c, d):
    """First a + c n, second b + d n."""
    assume(abs(a - b) > 1e-8 and abs(c - d) > 1e-12)
    at = crossing(SIZES, [a + c * n for n in SIZES], [b + d * n for n in SIZES])
    exact = (b - a) / (c - d)
    if c < d and exact > 0:  # the first is the better one in large buffers
        assert at is None or exact >= SIZES[-1]
    elif SIZES[0] < exact < SIZES[-1]:
        assert at == pytest.approx(exact, rel=1e-3)
    else:
        assert at in (0.0, None)
