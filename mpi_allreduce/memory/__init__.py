"""Where the numbers live, and what may be done with them: element types, operators, allocation.  No MPI."""

from . import arrays
from .device import AwareSpace, Device, StagedSpace
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
from .space import HOST, Port, Space

__all__ = [
    "AVG", "BAND", "BFLOAT16", "BOR", "BXOR", "HOST", "LAND", "LOR", "LXOR", "MAX", "MAXLOC", "MIN", "MINLOC",
    "OPERATORS", "PROD", "SUM", "AwareSpace", "Device", "Kind", "Operator", "Port", "Scratch", "Space", "StagedSpace",
    "allocate", "arrays", "borrowed", "dtype_named", "elements", "kind_of", "name_of", "pair_dtype", "widened", "wire",
]  # fmt: skip
