"""Costs as they are printed in papers, which can also be evaluated."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

__all__ = ["Cost", "Formula", "levels", "rounded_down"]


class Formula(str):
    """A closed form in p: ``Formula("2*(p-1)/p")(4) == Fraction(3, 2)``; one that begins with ``<=`` is a bound.

    Known symbols: ``p`` ranks, ``L`` = ceil(lg p), ``q`` = the largest power of two that is <= p, ``k`` = lg q,
    ``fold`` = 0 if p is a power of two, else 1; ``e`` = p if it is even, else p - 1 (but 1 for p = 1); comparisons
    count as 0 or 1.  Of algorithms with a parameter: ``S`` segments; ``r`` radix, with ``l`` = ceil(log_r p),
    ``j`` = floor(log_r p), ``m`` = floor(p / r^j) and ``u`` = m r^j.
    """

    @property
    def is_bound(self) -> bool:
        """Whether this is an upper bound only."""
        return self.startswith("<=")

    def __call__(self, p: int, **parameter: int) -> Fraction:
        k = p.bit_length() - 1
        symbols = {
            "p": Fraction(p),
            "L": (p - 1).bit_length(),
            "q": Fraction(1 << k),
            "k": k,
            "fold": int(p != 1 << k),
            "e": Fraction(max(p - p % 2, 1)),
            "min": min,
            "max": max,
            "ceil": ceil,
            "lg": lambda x: (ceil(x) - 1).bit_length(),
        }
        for name, value in parameter.items():
            symbols[name] = Fraction(value)
            if name == "r":
                j, u = rounded_down(p, value)
                symbols |= {"l": levels(p, value), "j": j, "u": u, "m": u // value**j}
        return Fraction(eval(self.removeprefix("<="), {"__builtins__": {}}, symbols))

    def holds(self, measured: Fraction, p: int, **parameter: int) -> bool:
        """Whether ``measured`` is what the formula says."""
        value = self(p, **parameter)
        return measured <= value if self.is_bound else measured == value


@dataclass(frozen=True)
class Cost:
    """Closed forms, proved by the verifier for every size that it checks.

    Attributes
    ----------
    rounds : Formula
        Length of the longest chain of dependent rounds.
    sent, reduced : Formula
        What the busiest rank sends and reduces, as a multiple of the buffer (exact when B divides the count).
    """

    rounds: Formula
    sent: Formula
    reduced: Formula


def levels(size: int, radix: int) -> int:
    """ceil(log_radix(size))."""
    number, span = 0, 1
    while span < size:
        number, span = number + 1, span * radix
    return number


def rounded_down(size: int, radix: int) -> tuple[int, int]:
    """(j, u): the largest u = m * radix**j <= size with 1 <= m < radix."""
    j = 0
    while radix ** (j + 1) <= size:
        j += 1
    return j, size // radix**j * radix**j
