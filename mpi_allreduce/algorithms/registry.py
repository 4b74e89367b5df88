"""Algorithms by name, with the facts that their interpreters need."""

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from .schedule import Exchange, Round

__all__ = ["Algorithm", "Cost", "Formula", "algorithm", "get", "names", "one_block", "per_rank"]

Generator = Callable[[int, int], Iterator[Exchange | tuple[Exchange, ...]]]


class Formula(str):
    """A cost as it is printed in papers, which can also be evaluated: ``Formula("2*(p-1)/p")(4) == Fraction(3, 2)``.

    Known symbols: ``p`` ranks, ``L`` = ceil(lg p), ``q`` = the largest power of two that is <= p, ``k`` = lg q, and
    ``fold`` = 0 if p is a power of two, else 1.
    """

    def __call__(self, p: int) -> Fraction:
        k = p.bit_length() - 1
        symbols = {
            "p": Fraction(p),
            "L": (p - 1).bit_length(),
            "q": Fraction(1 << k),
            "k": k,
            "fold": int(p != 1 << k),
        }
        return Fraction(eval(self, {"__builtins__": {}}, symbols))


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


@dataclass(frozen=True)
class Algorithm:
    """A schedule for every rank of every size, and what is known of it.

    Attributes
    ----------
    name : str
    generate : callable
        ``generate(rank, size)`` yields exchanges or tuples of them; block numbers may be given modulo B.
    blocks : callable
        ``blocks(size)`` is B, the number of blocks into which the buffer is cut.
    ordered : bool
        True if operands are combined in rank order, so that non-commutative operators may be used.
    cost : Cost
    source : str
        Where the algorithm comes from.
    """

    name: str
    generate: Generator
    blocks: Callable[[int], int]
    ordered: bool
    cost: Cost
    source: str

    def schedule(self, rank: int, size: int) -> list[Round]:
        """The rounds of one rank, block numbers within 0 .. B-1."""
        blocks = self.blocks(size)
        rounds = []
        for step in self.generate(rank, size):
            exchanges = (step,) if isinstance(step, Exchange) else step
            rounds.append(tuple(exchange.modulo(blocks) for exchange in exchanges))
        return rounds


_algorithms: dict[str, Algorithm] = {}


def algorithm(
    name: str, *, blocks: Callable[[int], int], ordered: bool, rounds: str, sent: str, reduced: str, source: str
) -> Callable[[Generator], Generator]:
    """Register the decorated generator under ``name``; a name can be taken once."""

    def register(generate: Generator) -> Generator:
        if name in _algorithms:
            raise ValueError(f"algorithm {name!r} is registered already, by {_algorithms[name].generate.__module__}")
        cost = Cost(Formula(rounds), Formula(sent), Formula(reduced))
        _algorithms[name] = Algorithm(name, generate, blocks, ordered, cost, source)
        return generate

    return register


def names(*, ordered: bool | None = None) -> list[str]:
    """Registered names in order of registration; with ``ordered`` only those that do (or do not) keep order."""
    return [a.name for a in _algorithms.values() if ordered is None or a.ordered == ordered]


def get(name: str) -> Algorithm:
    """The algorithm called ``name``.

    Raises
    ------
    ValueError
        If there is none; the message lists all names.
    """
    try:
        return _algorithms[name]
    except (KeyError, TypeError):
        raise unknown(name, names()) from None


def unknown(name: str, known: list[str]) -> ValueError:
    """The error for a name that is none of ``known``, with the nearest one suggested."""
    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return ValueError(f"algorithm: unknown name {name!r}; known are {', '.join(known)}.{hint}")


def per_rank(size: int) -> int:
    """One block for each rank."""
    return size


def one_block(size: int) -> int:
    """The whole buffer as a single block."""
    return 1
