"""Where the numbers live, and what may be done with them: element types, operators, allocation.  No MPI."""

from .dtypes import BFLOAT16, Kind, dtype_named, kind_of, name_of, pair_dtype, widened
from .host import allocate, borrowed, elements, wire
from .operators import (
    AVG,
    BAND,
    BOR,
    BXOR,
    LAND,
    LOR,
    LXOR,
    MAX,
    MAXLOC,
    MIN,
    MINLOC,
    OPERATORS,
    PROD,
    SUM,
    Operator,
)
from .pool import Scratch

__all__ = [
    "AVG", "BAND", "BFLOAT16", "BOR", "BXOR", "LAND", "LOR", "LXOR", "MAX", "MAXLOC", "MIN", "MINLOC", "OPERATORS",
    "PROD", "SUM", "Kind", "Operator", "Scratch", "allocate", "borrowed", "dtype_named", "elements", "kind_of",
    "name_of", "pair_dtype", "widened", "wire",
]  # fmt: skip
