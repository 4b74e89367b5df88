"""Sizes, cases and arrival patterns as the command line gives them."""

import numpy as np
import pytest

from mpi_allreduce.bench.binding import core_for
from mpi_allreduce.bench.passes import MOST_PASSES, Passes
from mpi_allreduce.bench.settings import Settings, all_cases, format_bytes, parse_bytes, parse_sizes
from mpi_allreduce.bench.skew import Skew


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("4:64", (4, 16, 64)),
        ("1K:8K:2", (1024, 2048, 4096, 8192)),
        ("4,1K,1M", (4, 1024, 1 << 20)),
        ("1.5K", (1536,)),
        ("2GiB", (2 << 30,)),
        ("64:64", (64,)),
        ("4:5,4", (4,)),
    ],
)
def test_sizes_are_ranges_with_a_factor_or_lists(text, sizes):
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "x", "4:", "8:4", "4:16:1", "4:16:2:3", "0:4", "-4", "1T"])
def test_sizes_that_mean_nothing_are_refused(text):
    with pytest.raises(ValueError, match="size: "):
        parse_sizes(text)


@pytest.mark.parametrize(("size", "text"), [(4, "4 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (16 << 20, "16 MiB")])
def test_bytes_are_printed_as_they_are_read(size, text):
    assert format_bytes(size) == text
    assert parse_bytes(text) == size


def settings(**changes):
    return Settings(**{"algorithms": ("ring", "vendor"), "sizes": (4, 1024), "dtype": np.dtype("f4"), **changes})


def test_every_algorithm_meets_every_size_once():
    cases = all_cases(settings(sizes=(4, 16, 64)))
    assert {(case.algorithm, case.bytes) for case in cases} == {(a, s) for a in ("ring", "vendor") for s in (4, 16, 64)}
    assert len(cases) == 6


def test_sizes_are_whole_elements_and_at_least_one():
    cases = all_cases(settings(sizes=(1, 3, 15, 17), dtype=np.dtype("c16")))
    assert {case.bytes for case in cases} == {16}


def test_every_pass_visits_all_cases_in_another_order_fixed_by_the_seed():
    cases = all_cases(settings(sizes=tuple(4 << i for i in range(20))))

    def orders(seed):
        passes = Passes(cases, 3, 60, seed)
        return [passes.next_pass(lambda case: False) for _ in range(4)]

    first, second, third, end = orders(1)
    assert end == []
    assert sorted(first, key=str) == sorted(second, key=str) == sorted(third, key=str) == sorted(cases, key=str)
    assert cases != first != second != third
    assert orders(1) == [first, second, third, end]
    assert orders(2)[0] != first


def test_after_all_cases_the_uncertain_ones_are_visited_until_time_is_up():
    cases = all_cases(settings(sizes=(4, 16, 64)))
    passes = Passes(cases, 2, 60, 1)
    for _ in range(2):
        assert len(passes.next_pass(lambda case: True)) == 6
    assert {case.algorithm for case in passes.next_pass(lambda case: case.algorithm == "ring")} == {"ring"}
    assert passes.next_pass(lambda case: False) == []
    late = Passes(cases, 1, 0.0, 1)
    assert len(late.next_pass(lambda case: True)) == 6
    assert late.next_pass(lambda case: True) == []
    endless = Passes(cases, 2, 1e6, 1)
    assert sum(bool(endless.next_pass(lambda case: True)) for _ in range(100)) == MOST_PASSES


def test_visits_share_the_time_that_is_left():
    passes = Passes(all_cases(settings(sizes=(4, 16, 64))), 2, 160.0, 1)
    passes.next_pass(lambda case: True)
    shares = [passes.share() for _ in range(6)]
    assert shares == pytest.approx([120 / n for n in (12, 11, 10, 9, 8, 7)], rel=0.01), "none of it was used meanwhile"
    passes.next_pass(lambda case: True)
    assert passes.share() == pytest.approx(20, rel=0.01)


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        ([{0, 1}] * 2, [0, 1]),
        ([{0, 1, 2, 3, 8, 9, 10, 11}] * 4, [0, 2, 8, 10]),
        ([{0, 1}] * 3, [None] * 3),  # more ranks than cores
        ([{0}, {1}], [None] * 2),  # the launcher bound them
        ([{0, 1}, {2, 3}], [None] * 2),
        ([{0}], [None]),
    ],
)
def test_ranks_get_a_core_each_only_where_nobody_else_saw_to_it(cores, expected):
    sets = [frozenset(c) for c in cores]
    assert [core_for(rank, sets) for rank in range(len(cores))] == expected


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("late:2", lambda d: ((d == 6).sum(axis=1) == 1).all() and ((d == 0).sum(axis=1) == 3).all()),
        ("linear", lambda d: np.allclose(d, [[0, 1, 2, 3]] * 50)),
        ("random:0.5", lambda d: d.max() <= 1.5 and d.min() >= 0 and d.std() > 0.2),
    ],
)
def test_skew_delays_as_named_and_alike_on_all_ranks(text, check):
    delays = Skew(text, 4, seed=3).delays(50, baseline=3.0)
    assert delays.shape == (50, 4)
    assert check(delays)
    np.testing.assert_array_equal(delays, Skew(text, 4, seed=3).delays(50, baseline=3.0))


@pytest.mark.parametrize("text", ["early", "late:x", "late:-1"])
def test_unknown_skew_is_refused(text):
    with pytest.raises(ValueError, match="skew: "):
        Skew(text, 4, 1)
