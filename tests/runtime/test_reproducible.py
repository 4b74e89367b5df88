"""Reproducible sums: the same bits whatever the algorithm, the order and the number of ranks; and hardly any error."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_allreduce import AVG, IN_PLACE, MAX, UnsupportedError, algorithm_names, allreduce, iallreduce, plan

pytestmark = pytest.mark.mpi
DTYPES = [np.float32, np.float64]
COUNT = 20_000  # more than a chunk


def wild(dtype, rank, count=COUNT):
    """Numbers of very different size, of which many cancel."""
    rng = np.random.default_rng([rank // 2, np.dtype(dtype).itemsize])
    values = rng.standard_normal(count) * 10.0 ** rng.integers(-12, 13, count)
    return (-values if rank % 2 else values + rng.standard_normal(count)).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_sum_has_the_same_bits_for_every_algorithm_order_and_number_of_ranks(comm, dtype):
    mine = wild(dtype, comm.rank)
    expected = allreduce(comm, mine, algorithm="ring", reproducible=True).tobytes()
    plain = set()
    for name in algorithm_names():
        try:
            assert allreduce(comm, mine, algorithm=name, reproducible=True).tobytes() == expected, name
        except UnsupportedError:  # persistent collectives, where the library has none
            continue
        plain.add(allreduce(comm, mine, algorithm=name).tobytes())
    assert len(plain) > 1 or comm.size < 3, "these numbers are no test"
    other_order = comm.Split(0, -comm.rank)
    assert allreduce(other_order, mine, reproducible=True).tobytes() == expected
    other_order.Free()


@pytest.mark.parametrize("dtype", DTYPES)
def test_ranks_that_contribute_zeros_change_nothing(comm, dtype):
    """Two ranks alone, and the same two among all others."""
    if comm.size < 3:
        pytest.skip("for 3 ranks or more")
    two = comm.Split(0 if comm.rank < 2 else 1, comm.rank)
    mine = wild(dtype, comm.rank) if comm.rank < 2 else np.zeros(COUNT, dtype)
    among_all = allreduce(comm, mine, reproducible=True)
    alone = comm.bcast(allreduce(two, mine, reproducible=True).tobytes())
    assert among_all.tobytes() == alone
    two.Free()


@pytest.mark.parametrize("dtype", DTYPES)
def test_error_is_that_of_one_rounding(comm, dtype):
    total = allreduce(comm, wild(dtype, comm.rank), reproducible=True)
    everything = np.array([wild(dtype, rank) for rank in range(comm.size)])
    exact = np.array([math.fsum(column) for column in everything.T])
    unit = np.abs(everything).max(axis=0).astype(np.float64) * 2.0 ** (-41 if dtype is np.float32 else -83)
    assert (np.abs(total - exact) <= np.spacing(np.abs(exact).astype(dtype)) + comm.size * unit).all()


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_one_rank_gets_back_what_it_gave_bit_for_bit(dtype, data):
    """Subnormal, huge, infinite: nothing is lost on the way into integers and out again; only -0 becomes +0."""
    from mpi4py import MPI

    width = 8 * np.dtype(dtype).itemsize
    values = np.array(data.draw(st.lists(st.floats(width=width, allow_nan=False), max_size=20)), dtype)
    np.testing.assert_array_equal(allreduce(MPI.COMM_SELF, values, reproducible=True), values)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_infinities_are_those_of_ieee_arithmetic(comm, dtype):
    mine = np.ones(6, dtype)
    first = comm.rank == 0
    last = comm.rank == comm.size - 1
    mine[0] = np.nan if first else 1
    mine[1] = np.inf if first else 1
    mine[2] = -np.inf
    mine[3] = np.inf if first else -np.inf if last else 1
    mine[4] = np.finfo(dtype).max
    total = allreduce(comm, mine, reproducible=True)
    conflict = np.inf if comm.size == 1 else np.nan
    overflow = np.finfo(dtype).max if comm.size == 1 else np.inf
    np.testing.assert_array_equal(total, np.array([np.nan, np.inf, -np.inf, conflict, overflow, comm.size], dtype))


def test_mean_in_place_nonblocking_and_repeated(comm):
    mine = wild(np.float64, comm.rank)
    expected = allreduce(comm, mine, op=AVG, reproducible=True).tobytes()
    in_place = mine.copy()
    run = plan(comm, IN_PLACE, in_place, op=AVG, algorithm="shared", reproducible=True)
    other = iallreduce(comm, mine, op=AVG, algorithm="shared", reproducible=True)
    assert run().tobytes() == expected
    in_place[:] = mine
    third = iallreduce(comm, mine, algorithm="shared")
    assert run.start().wait().tobytes() == expected
    assert other.wait().tobytes() == expected
    third.wait()


def test_what_rounds_nothing_is_refused(comm):
    with pytest.raises(ValueError, match="reproducible: expected op SUM or AVG, got MAX"):
        plan(comm, np.ones(3), op=MAX, reproducible=True)
    with pytest.raises(ValueError, match="reproducible: expected dtype float32 or float64, got int64"):
        plan(comm, np.ones(3, int), reproducible=True)
    with pytest.raises(ValueError, match="says it twice"):
        plan(comm, np.ones(3), algorithm="reproducible:ring", reproducible=True)
