"""The algorithms themselves: proved for many sizes, and with the costs that the literature gives them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_allreduce.algorithms import COPY, Formula, algorithm, block_offset, fitted, get, names, one_block
from mpi_allreduce.simulate import verify

SIZES = [*range(1, 34), 48, 63, 64, 65, 100, 127, 128, 129]


@pytest.mark.parametrize("name", names())
def test_algorithm_is_proved_for_every_number_of_ranks(name):
    for size in SIZES:
        verify(get(name), size)


@pytest.mark.parametrize("name", [name for name in names() if get(name).parameter])
def test_algorithm_is_proved_for_other_parameters(name):
    parameter = get(name).parameter
    for value in {parameter.least, 2, 3, 5, 8}:
        for size in (1, 2, 3, 4, 7, 8, 12, 15, 16, 17, 31, 33, 50):
            verify(get(f"{name}:{value}"), size)


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
        ("knomial_tree:4", 16, 4, 6, 6),
        ("knomial_tree:2", 8, 6, 3, 3),
        ("recursive_multiplying:4", 16, 2, 6, 6),
        ("recursive_multiplying:4", 8, 2, 4, 4),
        ("recursive_multiplying:3", 10, 4, 5, 5),
        ("pipelined_chain:10", 4, 24, 2, 1),
        ("pipelined_binary_tree:10", 7, 22, 3, 2),
        ("double_binary_tree:5", 8, 14, 2, 1),
        ("dual_root:10", 8, 33, 3, 3),
        ("dual_root:10", 2, 10, 1, 1),
        ("swing", 8, 6, Fraction(7, 4), Fraction(7, 8)),
        ("swing", 6, 6, Fraction(5, 3), Fraction(5, 6)),
        ("swing", 5, 6, Fraction(5, 2), Fraction(7, 4)),
        ("segmented_ring:4", 5, 32, Fraction(8, 5), Fraction(4, 5)),
    ],
)
def test_cost_is_that_of_the_literature(name, size, rounds, sent, reduced):
    proof = verify(get(name), size)
    assert (proof.rounds, proof.sent_max, proof.reduced_max) == (rounds, sent, reduced)


def test_algorithms_that_keep_operand_order_are_declared():
    assert names(ordered=True) == [
        "linear", "binomial_tree", "knomial_tree", "recursive_doubling", "recursive_multiplying", "rabenseifner",
        "pipelined_chain", "pipelined_binary_tree", "dual_root",
    ]  # fmt: skip
    assert names(ordered=False) == ["swing", "ring", "segmented_ring", "circulant", "pairwise", "double_binary_tree"]


def test_swing_reaches_no_farther_than_its_paper_says():
    """At the distances 1, 1, 3, 5, 11, ..., of which the sum is what congests a torus."""
    distances = [min((e.dst - 0) % 64, (0 - e.dst) % 64) for (e,) in get("swing").schedule(0, 64)[:6]]
    assert distances == [1, 1, 3, 5, 11, 21]


def test_in_a_double_binary_tree_nobody_has_children_in_both_trees():
    for size in range(2, 40):
        for rank in range(size):
            rounds = get("double_binary_tree:1").schedule(rank, size)
            trees = {e.received[0] for exchanges in rounds for e in exchanges if e.src is not None and e.action != COPY}
            assert len(trees) <= 1, (size, rank)


def test_a_parameter_follows_the_name_or_is_fitted_to_the_buffer():
    assert get("knomial_tree:8").value == 8
    assert get("pipelined_chain").value == 8
    assert fitted("pipelined_chain:3", 16, 1 << 30).name == "pipelined_chain:3"
    assert fitted("ring", 16, 1 << 30).name == "ring"
    few, many = (fitted("pipelined_chain", 16, size).value for size in (1 << 10, 64 << 20))
    assert few == 1
    assert 100 < many < 1000


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ring:2", "ring takes no parameter"),
        ("knomial_tree:1", r"knomial_tree is followed by its radix: expected 2 \.\. 64, got '1'"),
        ("pipelined_chain:x", "segments: expected 1"),
        ("pipelined_chain:", "segments: expected 1"),
    ],
)
def test_a_bad_parameter_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        get(name)


@pytest.mark.parametrize("name", names())
def test_one_rank_exchanges_nothing(name):
    assert get(name).schedule(0, 1) == []


@pytest.mark.parametrize("name", ["circulant", "pairwise", "ring", "rabenseifner", "swing"])
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
    assert Formula("l + j + m + u")(11, r=3) == 3 + 2 + 1 + 9
    assert Formula("<= S")(7, S=2) == 2
    assert Formula("<= S").holds(Fraction(1), 7, S=2)
    assert not Formula("S").holds(Fraction(1), 7, S=2)
    assert str(formula) == "2*(q-1)/q + fold + L + k"
