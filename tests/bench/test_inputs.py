"""Data: exact inputs really are, buffers do not overlap, a user's file is cut or tiled."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_allreduce.bench.inputs import PERIOD, Arena, exact_input, exact_result, load, rotation, stride
from mpi_allreduce.memory import OPERATORS, Kind, dtype_named, kind_of

DTYPES = ["bool", "int8", "uint8", "int32", "uint64", "float16", "bfloat16", "float32", "float64", "complex64"]
PAIRS = ["float64_int", "bfloat16_int"]


@pytest.mark.parametrize("dtype", DTYPES + PAIRS)
@pytest.mark.parametrize("size", [1, 2, 3, 8, 32, 300])
def test_exact_inputs_give_the_same_result_in_any_order(dtype, size):
    dtype = dtype_named(dtype)
    for op in (op for op in OPERATORS.values() if kind_of(dtype) in op.kinds):
        kernel = op.kernel(dtype, PERIOD)

        def combine(left, right, kernel=kernel):
            out = np.empty_like(left)
            kernel(left, right, out=out)
            return out

        inputs = [exact_input(op.name, dtype, rank, size) for rank in range(size)]
        order = np.random.default_rng(0).permutation(size)
        np.testing.assert_array_equal(reduce(combine, [inputs[i] for i in order]), exact_result(op.name, dtype, size))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("size", [4, 32, 300])
def test_exact_sums_are_the_true_ones(dtype, size):
    inputs = [exact_input("SUM", dtype_named(dtype), rank, size) for rank in range(size)]
    np.testing.assert_array_equal(
        exact_result("SUM", dtype_named(dtype), size).astype(float), sum(values.astype(float) for values in inputs)
    )


@pytest.mark.parametrize("dtype", DTYPES + PAIRS)
def test_exact_inputs_differ_from_element_to_element_and_from_rank_to_rank(dtype):
    """A block that is misplaced, or counted twice instead of another, must show."""
    dtype = dtype_named(dtype)
    op = {Kind.LOGICAL: "LXOR", Kind.PAIR: "MAXLOC"}.get(kind_of(dtype), "SUM")
    first, second = exact_input(op, dtype, 0, 4), exact_input(op, dtype, 1, 4)
    assert np.mean(first != second) > 0.3
    assert all(np.mean(first != np.roll(first, shift)) > 0.3 for shift in (1, 7, 64, 256))


@given(size=st.integers(1, 1 << 20), itemsize=st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_rotating_buffers_are_aligned_and_apart(size, itemsize):
    size = -(-size // itemsize) * itemsize
    step = stride(size, itemsize) * itemsize
    assert step % 64 == 0
    assert step >= size + 64
    assert step % 4096 != 0


def test_buffers_of_an_arena_do_not_overlap_and_hold_the_data():
    arena = Arena("normal", np.dtype("f4"), 3 * stride(1000, 4) * 4, rank=0, seed=1)
    triples = list(arena.buffers(1000, 3))
    for number, (send, receive, source) in enumerate(triples):
        np.testing.assert_array_equal(send, source)
        assert send.ctypes.data % 64 == receive.ctypes.data % 64 == 0
        send[:] = receive[:] = number
    assert [send[0] for send, _, _ in triples] == [receive[-1] for _, receive, _ in triples] == [0, 1, 2]


@pytest.mark.parametrize(
    ("size", "ranks", "number"), [(4, 1, 16), (1 << 20, 4, 8), (16 << 20, 4, 1), (1 << 30, 1, 1), (8 << 20, 1, 4)]
)
def test_rotation_is_as_large_as_two_caches(size, ranks, number):
    assert rotation(size, 32 << 20, ranks) == number


def test_data_of_ranks_differ_and_repeat_with_the_seed():
    a, b, again = (load("normal", np.dtype("f4"), 100, rank, 7) for rank in (0, 1, 0))
    assert (a == again).all()
    assert (a != b).all()


@pytest.mark.parametrize(
    ("dtype", "data"), [(dtype, "normal") for dtype in DTYPES + PAIRS] + [(dtype, "integers") for dtype in DTYPES[1:]]
)
def test_every_element_type_can_be_timed_on_data_that_is_not_zero(dtype, data):
    values = load(data, dtype_named(dtype), 1000, 1, 1)
    assert values.dtype == dtype_named(dtype)
    assert np.mean(values != np.zeros(1, values.dtype)) > 0.3


def test_a_file_is_tiled_or_cut_and_starts_elsewhere_on_each_rank(tmp_path):
    gradients = np.arange(10.0).reshape(2, 5)
    np.save(tmp_path / "g.npy", gradients)
    name = str(tmp_path / "g.npy")
    assert load(name, np.dtype("f4"), 13, 0, 1).tolist() == [*range(10), 0, 1, 2]
    assert load(name, np.dtype("f4"), 3, 0, 1).tolist() == [0, 1, 2]
    assert load(name, np.dtype("f4"), 12, 1, 1).tolist() == [9, *range(9), 9, 0]


def test_a_file_for_each_rank(tmp_path):
    for rank in range(2):
        np.save(tmp_path / f"g{rank}.npy", np.full(4, rank))
    assert load(str(tmp_path / "g{rank}.npy"), np.dtype("f8"), 2, 1, 1).tolist() == [1, 1]


def test_a_file_that_is_none_is_refused_with_its_name(tmp_path):
    (tmp_path / "text.npy").write_text("no numbers")
    for name in ("missing.npy", "text.npy"):
        with pytest.raises(ValueError, match=f"data: expected normal, integers or a .npy file, got .*{name}"):
            load(str(tmp_path / name), np.dtype("f4"), 3, 0, 1)
