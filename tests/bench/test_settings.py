"""Sizes, cases and arrival patterns as the command line gives them."""

import json
from collections import Counter

import numpy as np
import pytest

from mpi_allreduce.bench.binding import core_for
from mpi_allreduce.bench.passes import MOST_PASSES, Passes
from mpi_allreduce.bench.settings import Settings, all_cases
from mpi_allreduce.bench.skew import Skew
from mpi_allreduce.memory import dtype_named
from mpi_allreduce.units import format_bytes, parse_bytes, parse_rate, parse_sizes


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


@pytest.mark.parametrize("dtype", ["f4", "bfloat16", "float64_int"])
def test_settings_survive_a_record(dtype):
    before = settings(dtype=dtype_named(dtype), repetitions=(3, 4), skew="late")
    assert Settings.from_dict(json.loads(json.dumps(before.as_dict()))) == before


@pytest.mark.parametrize(("text", "rate"), [("100mbit", 1e8), ("25Gbit", 2.5e10), ("1.5kbit", 1500), ("7bit", 7)])
def test_rates_are_those_of_tc(text, rate):
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "100", "0mbit", "fast", "10mb"])
def test_rates_that_mean_nothing_are_refused(text):
    with pytest.raises(ValueError, match="rate: expected"):
        parse_rate(text)


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


def visits(passes, is_uncertain=lambda case: False):
    """All visits that would be made, and the shares of time that they would get."""
    made = []
    while visit := passes.next_visit(is_uncertain):
        made.append(visit)
    return [case for case, _ in made], [share for _, share in made]


def test_every_pass_visits_all_cases_in_another_order_fixed_by_the_seed():
    cases = all_cases(settings(sizes=tuple(4 << i for i in range(20))))
    order, _ = visits(Passes(cases, 3, 60, 1))
    first, second, third = order[:40], order[40:80], order[80:]
    assert sorted(first, key=str) == sorted(second, key=str) == sorted(third, key=str) == sorted(cases, key=str)
    assert cases != first != second != third
    assert visits(Passes(cases, 3, 60, 1))[0] == order
    assert visits(Passes(cases, 3, 60, 2))[0] != order


def test_after_all_cases_the_uncertain_ones_are_visited_until_time_is_up():
    cases = all_cases(settings(sizes=(4, 16, 64)))
    order, _ = visits(Passes(cases, 2, 60, 1), lambda case: case.algorithm == "ring")
    assert len(order) == 2 * 6 + (MOST_PASSES - 2) * 3
    assert {case.algorithm for case in order[12:]} == {"ring"}


def test_when_time_is_up_only_cases_that_were_never_visited_still_are():
    cases = all_cases(settings(sizes=(4, 16, 64)))
    order, _ = visits(Passes(cases, 5, 1e-9, 1), lambda case: True)
    assert sorted(order, key=str) == sorted(cases, key=str)


def test_a_resumed_launch_makes_just_the_visits_that_are_missing():
    cases = all_cases(settings(sizes=(4, 16, 64)))
    visited = Counter({cases[0]: 3, cases[1]: 1})
    order, _ = visits(Passes(cases, 3, 60, 1, visited))
    assert Counter(order) + visited == Counter(dict.fromkeys(cases, 3))


def test_a_case_that_is_forgotten_is_not_visited_again():
    cases = all_cases(settings(sizes=(4, 16)))
    passes = Passes(cases, 3, 60, 1)
    first, _ = passes.next_visit(lambda case: True)
    passes.forget(first)
    order, _ = visits(passes)
    assert first not in order
    assert len(order) == 3 * 3


def test_visits_share_the_time_that_is_left():
    _, shares = visits(Passes(all_cases(settings(sizes=(4, 16, 64))), 2, 160.0, 1))
    expected = [120 / left for left in range(12, 0, -1)]  # three quarters of the time, of which nothing was used
    assert shares == pytest.approx(expected, rel=0.01)


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
