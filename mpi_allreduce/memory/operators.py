"""Reduction operators: MPI's, the mean, and any function of the user's."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from .dtypes import BFLOAT16, Kind, kind_of

__all__ = [
    "AVG", "BAND", "BOR", "BXOR", "LAND", "LOR", "LXOR", "MAX", "MAXLOC", "MIN", "MINLOC", "OPERATORS", "PROD", "SUM",
    "Kernel", "Operator",
]  # fmt: skip

TRIED = 3  # elements: with one, code meant for scalars would pass
Kernel = Callable[..., object]
"""Like a ufunc, ``kernel(left, right, out=out)``: elementwise ``out = left op right``; ``out`` may be an operand."""


@dataclass(frozen=True)
class Operator:
    """An elementwise, associative operation.

    Attributes
    ----------
    name : str
    make_kernel : callable
        ``make_kernel(dtype, longest)`` returns the kernel for blocks of up to ``longest`` elements.  What scratch
        memory it needs is allocated here, so that running it allocates nothing.
    commutative : bool
        Whether ``a op b`` equals ``b op a`` (for all a and b).
    kinds : frozenset of Kind
        The element types that it takes.
    mean : bool
        True if the result is divided by the number of ranks.
    """

    name: str
    make_kernel: Callable[[np.dtype, int], Kernel]
    commutative: bool = True
    kinds: frozenset[Kind] = field(default=frozenset(Kind), repr=False)
    mean: bool = False

    @classmethod
    def from_function(cls, function: Callable, *, commutative: bool = False) -> "Operator":
        """An operator from a user's function.

        Parameters
        ----------
        function : callable
            It must not change its operands.  Either ``function(left, right)``, returning the result, or like a NumPy
            ufunc ``function(left, right, out=out)``, which saves a temporary and a copy.  Both operands are arrays of
            one dimension and equal length; ``left`` holds the contribution of lower ranks.
        commutative : bool
            Only a commutative operator may be used with algorithms that reorder operands.
        """
        return cls(getattr(function, "__name__", repr(function)), _UserKernel(function), bool(commutative))

    def kernel(self, dtype: np.dtype, longest: int) -> Kernel:
        """The kernel for ``dtype``, tried on a few zeros.

        Raises
        ------
        TypeError
            If the operator does not apply to ``dtype``, or a user's function fails on zeros, or changes its operands.
        """
        if kind_of(dtype) not in self.kinds:
            raise TypeError(f"op: {self.name} does not apply to dtype {dtype}; {self._alternative(dtype)}")
        kernel = self.make_kernel(dtype, max(longest, TRIED))
        left, right, out = np.zeros((3, TRIED), dtype)
        left.flags.writeable = right.flags.writeable = False  # as a contribution is when it is read from a send buffer
        try:
            with np.errstate(all="ignore"):
                result = kernel(left, right, out=out)
            if result is not None and result is not out:
                raise ValueError("it has a parameter out, but returns another array")
        except Exception as error:
            raise TypeError(f"op: {self.name} fails on {TRIED} elements of dtype {dtype}: {error}") from error
        return kernel

    def _alternative(self, dtype: np.dtype) -> str:
        kind = kind_of(dtype)
        fitting = [op.name for op in OPERATORS.values() if kind in op.kinds]
        return f"for {kind.value} elements use " + (", ".join(fitting) if fitting else "a function of your own")


class _UserKernel:
    """Makes kernels of one user's function; equal for equal functions, so that plans can be cached."""

    def __init__(self, function: Callable):
        self.function = function

    def __eq__(self, other) -> bool:
        return isinstance(other, _UserKernel) and self.function == other.function

    def __hash__(self) -> int:
        return hash(self.function)

    def __call__(self, dtype: np.dtype, longest: int) -> Kernel:
        function = self.function
        if isinstance(function, np.ufunc) or _takes_out(function):
            return function

        def kernel(left, right, out):
            result = function(left, right)
            if np.shape(result) != out.shape:
                raise ValueError(f"it must return an array of shape {out.shape}, not {np.shape(result)}")
            np.copyto(out, result, casting="same_kind")

        return kernel


def _takes_out(function: Callable) -> bool:
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # builtins without a signature
        return False


def _ufunc(ufunc: np.ufunc) -> Callable[[np.dtype, int], Kernel]:
    return lambda dtype, longest: ufunc


def _location(better: np.ufunc) -> Callable[[np.dtype, int], Kernel]:
    """MINLOC or MAXLOC: the better value with its index; on ties the lower index.

    With NaN among the values the result is undefined, as in MPI: it may differ between algorithms (not between ranks).
    """

    def make_kernel(dtype: np.dtype, longest: int) -> Kernel:
        value, index = dtype.names
        take_right, tie, lower = np.empty((3, longest), bool)

        def kernel(left, right, out):
            n = len(out)
            win, equal, below = take_right[:n], tie[:n], lower[:n]
            better(right[value], left[value], out=win)
            np.equal(right[value], left[value], out=equal)
            np.less(right[index], left[index], out=below)
            np.logical_and(equal, below, out=equal)
            np.logical_or(win, equal, out=win)
            np.logical_not(win, out=equal)
            # Right even where out is one of the operands: then one of the two copies changes nothing.
            for name in (value, index):
                np.copyto(out[name], right[name], where=win)
                np.copyto(out[name], left[name], where=equal)

        return kernel

    return make_kernel


def divide(array: np.ndarray, size: int) -> None:
    """Divide in place by a number of ranks, with one rounding (half types know few integers exactly)."""
    half = array.dtype in (np.dtype(np.float16), BFLOAT16)
    divisor = np.float32(size) if half else array.dtype.type(size)
    np.true_divide(array, divisor, out=array, casting="same_kind" if not half else "unsafe")


_NUMBERS = frozenset({Kind.INTEGER, Kind.FLOATING, Kind.COMPLEX})
_ORDERED = frozenset({Kind.INTEGER, Kind.FLOATING})
_INEXACT = frozenset({Kind.FLOATING, Kind.COMPLEX})
_BITS = frozenset({Kind.LOGICAL, Kind.INTEGER})
_PAIRS = frozenset({Kind.PAIR})

SUM = Operator("SUM", _ufunc(np.add), kinds=_NUMBERS)
PROD = Operator("PROD", _ufunc(np.multiply), kinds=_NUMBERS)
MIN = Operator("MIN", _ufunc(np.minimum), kinds=_ORDERED)
MAX = Operator("MAX", _ufunc(np.maximum), kinds=_ORDERED)
LAND = Operator("LAND", _ufunc(np.logical_and), kinds=_BITS)
LOR = Operator("LOR", _ufunc(np.logical_or), kinds=_BITS)
LXOR = Operator("LXOR", _ufunc(np.logical_xor), kinds=_BITS)
BAND = Operator("BAND", _ufunc(np.bitwise_and), kinds=_BITS)
BOR = Operator("BOR", _ufunc(np.bitwise_or), kinds=_BITS)
BXOR = Operator("BXOR", _ufunc(np.bitwise_xor), kinds=_BITS)
MINLOC = Operator("MINLOC", _location(np.less), kinds=_PAIRS)
MAXLOC = Operator("MAXLOC", _location(np.greater), kinds=_PAIRS)
AVG = Operator("AVG", _ufunc(np.add), kinds=_INEXACT, mean=True)

OPERATORS = {
    op.name: op for op in (SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR, BXOR, MINLOC, MAXLOC, AVG)
}  # fmt: skip
