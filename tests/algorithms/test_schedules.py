"""The algorithms themselves: proved for many sizes, and with the costs that the literature gives them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_allreduce.algorithms import Formula, algorithm, block_offset, get, names, one_block
from mpi_allreduce.simulate import verify

SIZES = [*range(1, 34), 48, 63, 64, 65, 100, 127, 128, 129]


@pytest.mark.parametrize("name", names())
def test_algorithm_is_proved_for_every_number_of_ranks(name):
    for size in SIZES:
        verify(get(name), size)


@pytest.mark.parametrize(
    ("name", "size", "rounds", "sent", "reduced"),
    [  # worked out by hand from the papers, not from the formulas in the code
        ("linear", 8, 14, 7, 7),
        ("binomial_tree", 8, 6, 3, 3),
        ("binomial_tree", 5, 6, 3, 3),
        ("recursive_doubling", 8, 3, 3, 3),
        ("recursive_doubling", 6, 4, 3, 3),
        ("rabenseifner", 8, 6, Fraction(7, 4), Fraction(7, 8)),
        ("rabenseifner", 6, 6, Fraction(5, 2), Fraction(7, 4)),
        ("ring", 8, 14, Fraction(7, 4), Fraction(7, 8)),
        ("ring", 5, 8, Fraction(8, 5), Fraction(4, 5)),
        ("circulant", 5, 6, Fraction(8, 5), Fraction(4, 5)),
        ("circulant", 33, 12, Fraction(64, 33), Fraction(32, 33)),
        ("pairwise", 8, 14, Fraction(7, 4), Fraction(7, 8)),
    ],
)
def test_cost_is_that_of_the_literature(name, size, rounds, sent, reduced):
    proof = verify(get(name), size)
    assert (proof.rounds, proof.sent_max, proof.reduced_max) == (rounds, sent, reduced)


def test_algorithms_that_keep_operand_order_are_declared():
    assert names(ordered=True) == ["linear", "binomial_tree", "recursive_doubling", "rabenseifner"]
    assert names(ordered=False) == ["ring", "circulant", "pairwise"]


@pytest.mark.parametrize("name", names())
def test_one_rank_exchanges_nothing(name):
    assert get(name).schedule(0, 1) == []


@pytest.mark.parametrize("name", ["circulant", "pairwise", "ring", "rabenseifner"])
def test_bandwidth_optimal_algorithms_send_no_more_than_two_buffers_when_no_fold_is_needed(name):
    for size in (2, 4, 8, 16, 64):
        assert verify(get(name), size).sent_max == Fraction(2 * (size - 1), size)


@given(count=st.integers(0, 10**12), blocks=st.integers(1, 5000))
def test_blocks_are_balanced_to_within_one_element(count, blocks):
    sample = {0, 1, blocks // 2, blocks - 1}
    lengths = [block_offset(b + 1, blocks, count) - block_offset(b, blocks, count) for b in sample if b < blocks]
    assert {count // blocks, -(-count // blocks)} >= set(lengths)
    assert (block_offset(0, blocks, count), block_offset(blocks, blocks, count)) == (0, count)


def test_unknown_name_lists_all_and_suggests_the_nearest():
    with pytest.raises(ValueError, match=r"'rign'.*linear, .*ring.*Did you mean 'ring'"):
        get("rign")


def test_a_name_can_be_registered_only_once():
    with pytest.raises(ValueError, match=r"'ring' is registered already, by mpi_allreduce\.algorithms\.ring"):
        algorithm("ring", blocks=one_block, ordered=True, rounds="0", sent="0", reduced="0", source="")(lambda r, s: ())


def test_formula_evaluates_what_it_prints():
    formula = Formula("2*(q-1)/q + fold + L + k")
    assert formula(6) == Fraction(3, 2) + 1 + 3 + 2
    assert str(formula) == "2*(q-1)/q + fold + L + k"
