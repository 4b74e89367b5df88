"""The number that may follow an algorithm's name, as in ``knomial_tree:4``, and how it is chosen if it does not."""

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt

__all__ = ["RADIX", "Parameter", "segments"]

HALF_BYTES = 16 << 10  # a message of so many bytes takes about twice as long as an empty one
MOST_SEGMENTS = 4096


@dataclass(frozen=True)
class Parameter:
    """A positive number that shapes a schedule.

    Attributes
    ----------
    name : str
    symbol : str
        In formulas.
    least, most : int
        What is accepted.
    default : int
        Where nothing is known of the buffer: in proofs and lists.
    fit : callable
        ``fit(size, nbytes)`` is the choice for a buffer.
    """

    name: str
    symbol: str
    least: int
    most: int
    default: int
    fit: Callable[[int, int], int]

    def parse(self, text: str) -> int:
        """The number behind the colon.

        Raises
        ------
        ValueError
        """
        value = int(text) if text.isdecimal() and len(text) < 10 else 0
        if not self.least <= value <= self.most:
            raise ValueError(f"{self.name}: expected {self.least} .. {self.most}, got {text!r}")
        return value


RADIX = Parameter("radix", "r", 2, 64, 4, lambda size, nbytes: 4)


def segments(depth: Callable[[int], int]) -> Parameter:
    """Segments of a pipeline that a segment takes ``depth(size)`` rounds to pass.

    (depth + S) rounds of n/S bytes take the least time when S = sqrt(depth * n / HALF_BYTES).
    """

    def fit(size: int, nbytes: int) -> int:
        best = isqrt(max(depth(size), 1) * nbytes // HALF_BYTES)
        return min(max(best, 1), MOST_SEGMENTS)

    return Parameter("segments", "S", 1, MOST_SEGMENTS, 8, fit)
