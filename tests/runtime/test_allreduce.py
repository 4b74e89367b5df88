"""Plans and allreduce() on real ranks: right for every algorithm, size, type and operator, and well behaved."""

import gc
import os
import tracemalloc
import weakref
from functools import reduce
from itertools import product

import numpy as np
import pytest

import mpi_allreduce
from mpi_allreduce import AVG, IN_PLACE, UnsupportedError, algorithm_names, allreduce, plan
from mpi_allreduce.algorithms import names
from mpi_allreduce.bench.inputs import exact_input, exact_result
from mpi_allreduce.memory import OPERATORS, dtype_named, kind_of
from mpi_allreduce.memory.operators import divide
from mpi_allreduce.runtime import is_vendor

pytestmark = pytest.mark.mpi

ALL = algorithm_names()
OURS = [name for name in ALL if not is_vendor(name)]
VENDORS = [name for name in ALL if is_vendor(name)]
CALLED = [name for name in VENDORS if name != "vendor_persistent"]  # as allreduce() may do; MPI 3 has no other
DTYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "bfloat16", "float32",
    "float64", "longdouble", "complex64", "complex128", "clongdouble", "float32_int", "float64_int", "int16_int",
    "bfloat16_int", "longdouble_int",
]  # fmt: skip
if int(os.environ.get("MPI_TEST_RANKS", 1)) > 4:  # what depends on the type alone is tested on fewer ranks
    DTYPES = ["bool", "int16", "bfloat16", "float64", "complex64", "float64_int"]


def plan_or_skip(*args, **kwargs):
    try:
        return plan(*args, **kwargs)
    except UnsupportedError as reason:
        pytest.skip(str(reason))


def everyones(comm, count, dtype=np.int64):
    """What rank r contributes, for every r: integers that differ from rank to rank and element to element."""
    return [(np.arange(count) % 19 * (rank + 1) - rank**2).astype(dtype) for rank in range(comm.size)]


def affine(left, right, out=None):
    """Composition of maps x -> a x + b over a prime field: associative, not commutative."""
    a, b = left["a"] * right["a"] % 8191, (left["b"] * right["a"] + right["b"]) % 8191
    out["a"], out["b"] = a, b


def affine_inputs(comm, count):
    rng = np.random.default_rng(5)
    inputs = np.empty((comm.size, count), [("a", np.int64), ("b", np.int64)])
    inputs["a"], inputs["b"] = rng.integers(2, 8191, (2, comm.size, count))
    expected = inputs[0].copy()
    for values in inputs[1:]:
        affine(expected, values, expected)
    return inputs[comm.rank].copy(), expected


@pytest.mark.parametrize("in_place", [False, True], ids=["out of place", "in place"])
@pytest.mark.parametrize("name", ALL)
def test_sum_is_exact_for_every_count_and_cutting(comm, name, in_place):
    p = comm.size
    for count in sorted({0, 1, p - 1, p, p + 1, 2 * p + 1, 1000, 40_003}):
        inputs = everyones(comm, count)
        for segment in (8, 1024, 4 << 20) if count <= 1000 and name in names() else (4 << 20,):
            mine = inputs[comm.rank].copy()
            buffers = (IN_PLACE, mine) if in_place else (mine, np.empty_like(mine))
            with plan_or_skip(comm, *buffers, algorithm=name, segment_bytes=segment) as run:
                result = run()
                np.testing.assert_array_equal(result, sum(inputs))
                assert result is buffers[1]
            if not in_place:
                np.testing.assert_array_equal(mine, inputs[comm.rank], "the send buffer must not change")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*OURS, *CALLED])
def test_every_operator_is_exact_on_every_element_type(comm, name, dtype):
    dtype = dtype_named(dtype)
    operators = [op for op in OPERATORS.values() if kind_of(dtype) in op.kinds]
    assert operators
    for op in operators:
        expected = exact_result(op.name, dtype, comm.size)
        if op.mean:
            divide(expected, comm.size)
        result = allreduce(comm, exact_input(op.name, dtype, comm.rank, comm.size), op=op, algorithm=name)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, expected, f"{op.name} of {dtype}")


@pytest.mark.parametrize("name", algorithm_names(ordered=True))
def test_function_that_does_not_commute_is_applied_in_rank_order(comm, name):
    mine, expected = affine_inputs(comm, 97)
    result = allreduce(comm, mine, op=affine, algorithm=name, commutative=False)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", OURS)
def test_function_that_commutes_works_with_every_algorithm(comm, name):
    inputs = everyones(comm, 31)
    result = allreduce(comm, inputs[comm.rank], op=lambda a, b: np.maximum(a, b), algorithm=name, commutative=True)
    np.testing.assert_array_equal(result, reduce(np.maximum, inputs))


def test_operators_of_mpi4py_are_accepted(comm):
    from mpi4py import MPI

    inputs = everyones(comm, 31)
    for op, ufunc in ((MPI.SUM, np.add), (MPI.MAX, np.maximum), (MPI.BXOR, np.bitwise_xor)):
        np.testing.assert_array_equal(allreduce(comm, inputs[comm.rank], op=op), reduce(ufunc, inputs))


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_all_ranks_hold_the_same_bits_whatever_the_rounding(comm, name, dtype):
    rng = np.random.default_rng(comm.rank)
    wide = rng.standard_normal(1003) * 10.0 ** rng.integers(-3, 3, 1003)
    for op in ("SUM", "PROD", "MAX", "AVG"):
        if OPERATORS[op].kinds.isdisjoint({kind_of(dtype_named(dtype))}):
            continue
        with np.errstate(all="ignore"):
            result = allreduce(comm, wide.astype(dtype_named(dtype)), op=OPERATORS[op], algorithm=name)
        assert len(set(comm.allgather(result.tobytes()))) == 1


@pytest.mark.parametrize("name", OURS)
def test_signed_zeros_and_nan_are_the_same_on_all_ranks(comm, name):
    mine = np.array([-0.0 if comm.rank % 2 else 0.0, np.nan if comm.rank == 0 else 1.0], np.float32)
    result = allreduce(comm, mine, op=OPERATORS["MIN"], algorithm=name)
    assert len(set(comm.allgather(result.tobytes()))) == 1
    assert np.isnan(result[1])


@pytest.mark.parametrize("shape", [(), (1,), (3, 4, 5), (2, 0, 3)])
def test_arrays_of_any_shape_keep_it(comm, shape):
    result = allreduce(comm, np.full(shape, comm.rank + 1.0))
    assert result.shape == shape
    assert (result == comm.size * (comm.size + 1) / 2).all()


def test_mean_is_the_sum_divided_by_the_ranks(comm):
    result = allreduce(comm, np.array([comm.rank, 10.0]), op=AVG)
    assert result.tolist() == [(comm.size - 1) / 2, 10.0]


def test_a_plan_reads_its_send_buffer_anew_each_time(comm):
    mine = np.zeros(5)
    run = plan(comm, mine, algorithm="circulant")
    for value in (1.0, 2.0, -3.0):
        mine[:] = value
        assert (run() == value * comm.size).all()


def test_two_plans_on_one_communicator_may_be_interleaved(comm):
    a, b = np.full(1000, 1.0), np.full(70, 2.0, np.float32)
    first, second = plan(comm, a, algorithm="ring"), plan(comm, b, algorithm="rabenseifner")
    for order in ((first, second), (second, first), (first, first, second, second, first)):
        for run in order:
            run()
        assert (first.recvbuf == comm.size).all()
        assert (second.recvbuf == 2 * comm.size).all()


def test_messages_of_the_user_are_not_touched(comm):
    """An unexpected message with any tag waits on the user's communicator while we reduce on a duplicate of it."""
    from mpi4py import MPI

    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    requests = [comm.isend(("mine", tag), right, tag) for tag in range(3)]
    assert (allreduce(comm, np.ones(100), algorithm="ring") == comm.size).all()
    assert [comm.recv(source=left, tag=tag) for tag in range(3)] == [("mine", tag) for tag in range(3)]
    MPI.Request.Waitall(requests)


@pytest.mark.parametrize(
    ("name", "op"), [*((name, "SUM") for name in OURS), *product(["ring", "shared"], ["AVG", "MAXLOC"])]
)
@pytest.mark.parametrize("in_place", [False, True], ids=["out of place", "in place"])
def test_a_repeated_plan_allocates_nothing(comm, name, in_place, op):
    dtype = dtype_named("float64_int" if op == "MAXLOC" else "float64")
    mine = np.zeros(100_000, dtype)
    buffers = (IN_PLACE, mine) if in_place else (mine, np.empty_like(mine))
    with plan(comm, *buffers, op=OPERATORS[op], algorithm=name) as run:
        tracemalloc.start()
        try:
            for _ in range(100):  # until the interpreter's free lists are full
                run()
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            for _ in range(20):
                run()
            after, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert after - before < 512, "nothing stays"
    assert peak - before < 4096, "and nothing as large as a block comes and goes"


def test_scratch_is_none_for_an_out_of_place_ring_and_at_most_a_segment_in_place(comm):
    mine = np.zeros(64_000)
    assert plan(comm, mine, algorithm="ring").scratch_bytes == 0
    assert plan(comm, IN_PLACE, mine, algorithm="ring", segment_bytes=4096).scratch_bytes <= 4096


def test_sent_bytes_are_those_of_the_formula(comm):
    from mpi4py import MPI

    from mpi_allreduce.algorithms import get

    mine = np.zeros(8 * 9 * 5 * 7)  # divisible by every number of blocks
    for name in names():
        algorithm = get(f"{name}:4" if get(name).parameter else name)
        sent = comm.allreduce(plan(comm, mine, algorithm=algorithm.name).sent_bytes, MPI.MAX)
        assert sent == algorithm.cost.sent(comm.size, **algorithm.symbols) * mine.nbytes


def test_allreduce_keeps_no_memory_alive_and_notices_another_array_at_the_same_address(comm):
    array = np.ones(1 << 16)
    result = allreduce(comm, array)
    gone = [weakref.ref(array), weakref.ref(result)]
    address = array.ctypes.data
    del array, result
    gc.collect()
    assert [ref() for ref in gone] == [None, None]
    for count, dtype in ((1 << 15, np.float64), (1 << 16, np.float32), (1 << 16, np.int64)):
        another = np.full(count, 3, dtype)  # quite likely at the same address
        assert (allreduce(comm, another) == 3 * comm.size).all(), (another.ctypes.data, address)


def test_freeing_a_communicator_frees_its_duplicate(comm):
    """MPI libraries have about 2000 communicators to give; a leak of one for each call would run out."""
    for _ in range(2300 if comm.size <= 4 else 100):  # the limit is each rank's own
        mine = comm.Dup()
        allreduce(mine, np.ones(1), algorithm="recursive_doubling")
        mine.Free()


def test_a_duplicate_of_a_used_communicator_is_independent(comm):
    assert (allreduce(comm, np.ones(3)) == comm.size).all()
    copy = comm.Dup()
    try:
        assert (allreduce(copy, np.ones(3)) == comm.size).all()
        assert (allreduce(comm, np.ones(3)) == comm.size).all()
    finally:
        copy.Free()


def test_ranks_of_a_split_communicator_reduce_among_themselves(comm):
    half = comm.Split(comm.rank % 2)
    try:
        expected = sum(rank for rank in range(comm.size) if rank % 2 == comm.rank % 2)
        assert (allreduce(half, np.full(7, comm.rank), algorithm="circulant") == expected).all()
    finally:
        half.Free()


def test_more_calls_than_plans_are_kept(comm):
    for count in [*range(1, 100), *range(1, 100)]:
        assert (allreduce(comm, np.ones(count), algorithm="rabenseifner") == comm.size).all()


def test_more_plans_than_tags(comm):
    from mpi_allreduce.runtime.communicator import private

    state = private(comm)
    state._tag = state._last_tag - 1
    runs = [plan(comm, np.full(5, 1.0 + i), algorithm="ring") for i in range(4)]
    for i, run in enumerate(runs):
        assert (run() == comm.size * (1 + i)).all()


def test_a_freed_plan_says_so(comm):
    run = plan(comm, np.ones(3), algorithm="ring")
    run.free()
    with pytest.raises(RuntimeError, match="plan: it was freed"):
        run()


@pytest.mark.parametrize("name", ALL)
def test_hundred_rounds_of_random_sizes_stay_exact(comm, name):
    rng = np.random.default_rng(11)
    for count in rng.integers(1, 3000, 40 if comm.size > 5 else 100):
        inputs = everyones(comm, int(count), np.int32)
        try:
            result = allreduce(comm, inputs[comm.rank], algorithm=name)
        except UnsupportedError as reason:
            pytest.skip(str(reason))
        np.testing.assert_array_equal(result, sum(inputs))


@pytest.mark.parametrize("dtype", DTYPES)
def test_vendor_is_given_its_own_operators_wherever_it_has_them(comm, dtype):
    """Otherwise every comparison would be with a callback into Python."""
    dtype = dtype_named(dtype)
    for op in OPERATORS.values():
        if kind_of(dtype) not in op.kinds or str(dtype) in ("float16", "bool") or "bfloat16" in str(dtype):
            continue  # not in the MPI standard
        mine = np.zeros(3, dtype)
        for name in VENDORS:
            with plan_or_skip(comm, mine, op=op, algorithm=name) as run:
                assert run.native_op


def test_vendor_serves_more_functions_of_the_users_than_mpi_has_handles_for(comm):
    for _ in range(40):
        result = allreduce(comm, np.ones(2), op=lambda a, b: a + b, algorithm="vendor", commutative=True)
        assert (result == comm.size).all()


def test_a_function_is_not_mistaken_for_an_operator_of_the_same_name(comm):
    def function(left, right):
        return np.maximum(left, right)

    function.__name__ = "SUM"
    inputs = everyones(comm, 31)
    result = allreduce(comm, inputs[comm.rank], op=function, algorithm="vendor", commutative=True)
    np.testing.assert_array_equal(result, reduce(np.maximum, inputs))


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("name", [*OURS, *CALLED])
def test_subclasses_of_arrays_are_reduced_as_the_plain_arrays_that_they_are(comm, name):
    mine = np.matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]) * (comm.rank + 1)
    with plan(comm, mine, algorithm=name) as run:
        np.testing.assert_array_equal(run(), np.asarray(mine) / (comm.rank + 1) * comm.size * (comm.size + 1) / 2)


def test_plans_that_are_kept_hold_little_scratch_memory(comm):
    from mpi_allreduce.runtime.communicator import SCRATCH_KEPT, private

    arrays = [np.ones((1 << 19) + 64 * i) for i in range(12)]
    for array in arrays:
        assert (allreduce(comm, IN_PLACE, array, algorithm="recursive_doubling") == comm.size).all()
    assert sum(kept.scratch_bytes for kept in private(comm).plans.values()) <= SCRATCH_KEPT


def test_names_of_the_package_are_found():
    for name in mpi_allreduce.__all__:
        assert getattr(mpi_allreduce, name) is not None
