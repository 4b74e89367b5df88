"""Element types: what kind of number a NumPy dtype holds, which is what decides the operators that apply to it."""

from enum import Enum

import ml_dtypes
import numpy as np

__all__ = ["BFLOAT16", "Kind", "dtype_named", "kind_of", "name_of", "pair_dtype", "widened"]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class Kind(Enum):
    """Families of element types, as the MPI standard groups them for its operators."""

    LOGICAL = "bool"
    INTEGER = "integer"
    FLOATING = "floating point"
    COMPLEX = "complex"
    PAIR = "(value, index) pair"
    RECORD = "record"


_KINDS = {"b": Kind.LOGICAL, "i": Kind.INTEGER, "u": Kind.INTEGER, "f": Kind.FLOATING, "c": Kind.COMPLEX}


def kind_of(dtype: np.dtype) -> Kind:
    """The kind of ``dtype``.

    Raises
    ------
    TypeError
        For element types that cannot be reduced: objects, strings, dates, other byte orders.
    """
    if dtype == BFLOAT16:
        return Kind.FLOATING
    if dtype.hasobject:
        raise TypeError(f"dtype {dtype} holds Python objects; use a numeric dtype")
    if not dtype.isnative:
        raise TypeError(f"dtype {dtype.str} is in foreign byte order; use .astype({dtype.newbyteorder('=')})")
    if dtype.names:
        return Kind.PAIR if _is_pair(dtype) else Kind.RECORD
    if dtype.kind not in _KINDS or dtype.subdtype:
        raise TypeError(f"dtype {dtype} is not numeric; use bool, integers, floats, complex, bfloat16 or a record")
    return _KINDS[dtype.kind]


def _is_pair(dtype: np.dtype) -> bool:
    if len(dtype.names) != 2:
        return False
    value, index = (dtype[name] for name in dtype.names)
    return (value.kind in "iuf" or value == BFLOAT16) and index.kind in "iu"


def pair_dtype(value, index=np.int32) -> np.dtype:
    """The dtype of (value, index) pairs for MINLOC and MAXLOC, padded like the C struct that MPI uses.

    >>> pair_dtype(np.float64)
    dtype([('value', '<f8'), ('index', '<i4')], align=True)
    """
    return np.dtype([("value", value), ("index", index)], align=True)


def dtype_named(name: str) -> np.dtype:
    """A dtype by its usual name, e.g. ``float32``, ``bfloat16``, ``complex64``, or ``float64_int`` for pairs.

    Raises
    ------
    ValueError
        If the name is not known or cannot be reduced.
    """
    try:
        if name.endswith("_int"):
            return pair_dtype(dtype_named(name.removesuffix("_int")))
        dtype = BFLOAT16 if name == "bfloat16" else np.dtype(name)
        kind_of(dtype)
    except TypeError as error:
        raise ValueError(f"dtype: {name!r} is not a numeric type such as float32, int64, bfloat16") from error
    return dtype


def name_of(dtype: np.dtype) -> str:
    """The name by which :func:`dtype_named` finds a dtype."""
    return f"{name_of(dtype[dtype.names[0]])}_int" if dtype.names else str(dtype)


_WIDER = {
    BFLOAT16: np.dtype(np.float64),
    np.dtype(np.float16): np.dtype(np.float64),
    np.dtype(np.float32): np.dtype(np.float64),
    np.dtype(np.float64): np.dtype(np.longdouble),
    np.dtype(np.complex64): np.dtype(np.complex128),
    np.dtype(np.complex128): np.dtype(np.clongdouble),
}


def widened(dtype: np.dtype) -> np.dtype:
    """A dtype in which sums of ``dtype`` are accurate enough to judge sums made in ``dtype``; itself if none is."""
    return _WIDER.get(dtype, dtype)
