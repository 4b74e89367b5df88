"""Operators: values, aliasing, which element types they take, functions of the user's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_allreduce.memory import BFLOAT16, MAXLOC, MINLOC, OPERATORS, SUM, Operator, borrowed, dtype_named, kind_of
from mpi_allreduce.memory.operators import divide

PLAIN = {
    "SUM": lambda a, b: a + b,
    "PROD": lambda a, b: a * b,
    "MIN": min,
    "MAX": max,
    "AVG": lambda a, b: a + b,
    "LAND": lambda a, b: bool(a) and bool(b),
    "LOR": lambda a, b: bool(a) or bool(b),
    "LXOR": lambda a, b: bool(a) != bool(b),
    "BAND": lambda a, b: a & b,
    "BOR": lambda a, b: a | b,
    "BXOR": lambda a, b: a ^ b,
}


@pytest.mark.parametrize("out_is", ["left", "right", "neither"])
@pytest.mark.parametrize("name", PLAIN)
def test_operator_is_elementwise_and_may_write_into_an_operand(name, out_is):
    dtype = np.dtype(np.float64 if name == "AVG" else np.int32)
    left, right = np.array([[0, 1, 5, 6, 3], [0, 0, 3, 6, -7]], dtype)
    expected = [PLAIN[name](a, b) for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    out = {"left": left, "right": right, "neither": np.empty_like(left)}[out_is]
    OPERATORS[name].kernel(dtype, 5)(left, right, out=out)
    assert out.tolist() == expected


@pytest.mark.parametrize("out_is", ["left", "right", "neither"])
@pytest.mark.parametrize(("op", "better"), [(MINLOC, min), (MAXLOC, max)])
@given(
    pairs=st.lists(st.tuples(*[st.integers(-2, 2), st.integers(0, 2)] * 2), min_size=1, max_size=20),
)
def test_location_takes_the_better_value_and_on_ties_the_lower_index(op, better, out_is, pairs):
    dtype = dtype_named("float64_int")
    left = np.array([(a, i) for a, i, _, _ in pairs], dtype)
    right = np.array([(b, j) for _, _, b, j in pairs], dtype)
    out = {"left": left, "right": right, "neither": np.empty_like(left)}[out_is]
    expected = []
    for a, i, b, j in pairs:
        value = better(a, b)
        expected.append((value, min(index for v, index in ((a, i), (b, j)) if v == value)))
    op.kernel(dtype, len(pairs))(left, right, out=out)
    assert out.tolist() == expected


@pytest.mark.parametrize(
    ("op", "dtype", "instead"),
    [
        ("SUM", "bool", "LAND, LOR, LXOR, BAND, BOR, BXOR"),
        ("MAX", "complex64", "SUM, PROD, AVG"),
        ("BAND", "float32", "SUM, PROD, MIN, MAX, AVG"),
        ("LAND", "bfloat16", "SUM, PROD, MIN, MAX, AVG"),
        ("AVG", "int64", "SUM, PROD, MIN"),
        ("SUM", "float64_int", "MINLOC, MAXLOC"),
        ("MINLOC", "float64", "SUM, PROD, MIN, MAX, AVG"),
    ],
)
def test_operator_refuses_element_types_that_mpi_refuses_and_says_what_applies(op, dtype, instead):
    with pytest.raises(TypeError, match=f"op: {op} does not apply to dtype.*use {instead}"):
        OPERATORS[op].kernel(dtype_named(dtype), 1)


@pytest.mark.parametrize(
    "dtype", [np.dtype(object), np.dtype("U4"), np.dtype("M8[s]"), np.dtype(">f4"), np.dtype([("a", object)])]
)
def test_elements_that_are_not_native_numbers_are_refused(dtype):
    with pytest.raises(TypeError):
        kind_of(dtype)


def test_function_may_return_its_result_or_write_it():
    left, right, out = np.array([[1.0, 2.0], [5.0, 3.0], [0.0, 0.0]])
    Operator.from_function(lambda a, b: a - b).kernel(left.dtype, 2)(left, right, out=out)
    assert out.tolist() == [-4, -1]
    Operator.from_function(np.hypot).kernel(left.dtype, 2)(left, right, out=out)
    np.testing.assert_array_equal(out, np.hypot(left, right))


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda a, b: a[:0], r"must return an array of shape \(3,\)"),
        (lambda a: a, "argument"),
        (lambda a, b: a + 1j, "cast"),
        (lambda a, b: a if a > b else b, "truth value"),
        (lambda a, b, out: a + b, "returns another array"),
        (lambda a, b: a.__iadd__(b), "read-only"),
    ],
)
def test_function_that_cannot_work_is_found_on_one_element(function, why):
    with pytest.raises(TypeError, match=f"op: <lambda> fails on 3 elements of dtype float64: .*{why}"):
        Operator.from_function(function).kernel(np.dtype(np.float64), 10)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16, np.float32, np.float64])
def test_mean_is_divided_by_the_true_number_of_ranks_even_where_the_type_does_not_hold_it(dtype):
    array = np.array([3, 300, -7], dtype)
    quotient = array.astype(np.float64) / 2051  # neither float16 nor bfloat16 holds 2051
    divide(array, 2051)
    np.testing.assert_array_equal(array, quotient.astype(dtype))


def test_borrowed_view_shares_memory_without_owning_it():
    import weakref

    array = np.arange(6.0).reshape(2, 3)
    view = borrowed(array)
    view[4] = -1
    assert array[1, 1] == -1
    assert view.dtype == array.dtype
    gone = weakref.ref(array)
    del array
    assert gone() is None


def test_sum_of_half_types_is_rounded_to_nearest():
    left, right = np.array([1, 256], BFLOAT16), np.array([2**-9, 1], BFLOAT16)
    out = np.empty_like(left)
    SUM.kernel(BFLOAT16, 2)(left, right, out=out)
    assert out.astype(float).tolist() == [1, 256]
