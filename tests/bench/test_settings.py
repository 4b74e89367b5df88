"""Sizes, cases and arrival patterns as the command line gives them."""

import numpy as np
import pytest

from mpi_allreduce.bench.settings import Settings, format_bytes, parse_bytes, parse_sizes, shuffled_cases
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


def test_every_algorithm_meets_every_size_once_in_an_order_fixed_by_the_seed():
    sizes = tuple(4 << i for i in range(20))
    first, again, other = (shuffled_cases(settings(sizes=sizes, seed=seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert sorted(first, key=str) == sorted(other, key=str)
    assert len(set(first)) == len(first) == 40
    assert first != sorted(first, key=lambda case: case.bytes), "it is shuffled"


def test_sizes_are_whole_elements_and_at_least_one():
    cases = shuffled_cases(settings(sizes=(1, 3, 15, 17), dtype=np.dtype("c16")))
    assert {case.bytes for case in cases} == {16}


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
