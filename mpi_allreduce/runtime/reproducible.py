"""Floating-point sums with the same bits whatever the order: exponents are agreed on, then integers are added."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..memory import MAX, SUM, Operator, Scratch
from .execution import Execution, Task
from .progress import Progress
from .stages import InStages

__all__ = ["bind_reproducible", "check_reproducible"]

CHUNK = 16 << 10  # elements at a time, so that temporaries stay in the cache
HEADROOM = 20  # bits: 2**20 ranks can be added without overflow
WORD = 62 - HEADROOM  # bits of a contribution in each 64-bit word
INFINITE = WORD // 2  # words of numbers that are not finite count: NaN above WORD, inf above INFINITE, -inf below


@dataclass(frozen=True)
class Layout:
    """How numbers of one type are taken apart.

    Attributes
    ----------
    integer : type
        Of the same size.
    mantissa, exponents : int
        Bits of the mantissa; exponents as stored in the number, the highest for what is not finite.
    bias : int
        A number with the stored exponent E is less than 2**(E - bias).
    words : int
        64-bit words for one number.
    """

    integer: type
    mantissa: int
    exponents: int
    bias: int
    words: int


LAYOUTS = {
    np.dtype(np.float32): Layout(np.int32, 23, 1 << 8, 126, 1),
    np.dtype(np.float64): Layout(np.int64, 52, 1 << 11, 1022, 2),
}


def check_reproducible(op: Operator, dtype: np.dtype) -> None:
    """Refuse what has no reproducible form.

    Raises
    ------
    ValueError
    """
    if op.name not in ("SUM", "AVG"):
        raise ValueError(f"reproducible: expected op SUM or AVG, got {op.name}; other operators of MPI's round nothing")
    if dtype not in LAYOUTS:
        raise ValueError(f"reproducible: expected dtype float32 or float64, got {dtype}")


def bind_reproducible(task: Task, bind: Callable[[Task], Execution]) -> Execution:
    """Bind ``reproducible`` or ``reproducible:ALGORITHM``.

    For each element the largest exponent of all contributions is found (an allreduce of int16 with MAX); then each
    contribution is rounded to a multiple of one unit, 2**-42 (float32) or 2**-84 (float64) of the power of two above
    the largest, and the multiples are added as 64-bit integers.  Rounding depends on the element alone, and integers
    add up to the same sum in every order: so neither the algorithm, nor the number of ranks, nor their order changes
    a bit, as long as the contributions are the same (ranks that contribute zeros do not matter).

    The error is that of one rounding of the sum, plus at most p units: less than any order of adding has.  A sum that
    is zero is +0.  As in IEEE arithmetic NaN wins, and so does the sum of both infinities.

    Cost: 2.5 times (float32) or 2.25 times (float64) the bytes of a plain sum, in twice the rounds; scratch memory of
    2.5 or 2.25 buffers; and a pass over the buffer before, between and behind.  For up to 2**20 ranks.

    Source: pre-rounding to a common exponent, J. Demmel, H. D. Nguyen: Parallel reproducible summation, IEEE
    Transactions on Computers, 2015; with integers, as A. Arteaga, O. Fuhrer, T. Hoefler: Designing bit-reproducible
    portable high-performance applications, IPDPS 2014.
    """
    return Reproducible(task, bind)


class Reproducible(InStages):
    """Encode, allreduce, encode, allreduce, decode."""

    def __init__(self, task: Task, bind: Callable[[Task], Execution]):
        name = task.name.partition(":")[2] or "circulant"
        self.layout = layout = LAYOUTS[task.receive.dtype]
        self.source, self.receive = task.source, task.receive
        count = task.receive.size
        scratch = [Scratch(count, np.dtype(np.int16)), Scratch(count * layout.words, np.dtype(np.int64))]
        self.exponents, self.words = (memory.array for memory in scratch)
        super().__init__(
            bind(replace(task, name=name, send=None, receive=buffer, op=op, staged=True))
            for buffer, op in ((self.exponents, MAX), (self.words, SUM))
        )
        self.scratch_bytes += self.exponents.nbytes + self.words.nbytes
        self.resources += scratch

    def run(self) -> Progress:
        """One allreduce after the other."""
        self._each_chunk(self._take_exponents)
        yield from self.stage(0)
        self._each_chunk(self._take_words)
        yield from self.stage(1)
        self._each_chunk(self._put_together)

    def _each_chunk(self, work: Callable[[slice], None]) -> None:
        for start in range(0, self.receive.size, CHUNK):
            work(slice(start, min(start + CHUNK, self.receive.size)))

    def _words(self, part: slice) -> np.ndarray:
        """The words of a chunk, shape (words, elements)."""
        words = self.layout.words
        return self.words[part.start * words : part.stop * words].reshape(words, -1)

    def _take_exponents(self, part: slice) -> None:
        bits = self.source[part].view(self.layout.integer)
        np.copyto(self.exponents[part], bits >> self.layout.mantissa & self.layout.exponents - 1, casting="unsafe")

    def _take_words(self, part: slice) -> None:
        values, words = self.source[part], self._words(part)
        exponents = self.exponents[part].astype(np.int32) - self.layout.bias
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            scaled = np.ldexp(values.astype(np.float64, copy=False), WORD - exponents)
            for word in words:
                rounded = np.rint(scaled)
                np.copyto(word, rounded, casting="unsafe")
                scaled = np.ldexp(scaled - rounded, WORD)
        strange = self._strange(part)
        if strange.any():
            kinds = np.select([np.isnan(values), values == np.inf, values == -np.inf], [1 << WORD, 1 << INFINITE, 1], 0)
            words[:, strange] = 0
            words[0, strange] = kinds[strange]

    def _put_together(self, part: slice) -> None:
        words, out = self._words(part), self.receive[part]
        exponents = self.exponents[part].astype(np.int32) - self.layout.bias - WORD
        sums = words[0]
        if len(words) == 2:
            sums = (sums + (words[1] >> WORD)).astype(np.float64)
            sums += np.ldexp((words[1] & (1 << WORD) - 1).astype(np.float64), -WORD)
        with np.errstate(over="ignore", under="ignore"):
            np.copyto(out, np.ldexp(sums.astype(np.float64), exponents), casting="same_kind")
        strange = self._strange(part)
        if strange.any():
            counts, below = words[0][strange], (1 << INFINITE) - 1
            nans, plus, minus = counts >> WORD, counts >> INFINITE & below, counts & below
            out[strange] = np.where((nans > 0) | (plus > 0) & (minus > 0), np.nan, np.where(plus > 0, np.inf, -np.inf))

    def _strange(self, part: slice) -> np.ndarray:
        """Where a contribution is not finite."""
        return self.exponents[part] == self.layout.exponents - 1
