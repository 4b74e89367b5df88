"""Algorithms by name, with the facts that their interpreters need."""

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from .cost import Cost, Formula
from .parameters import Parameter
from .schedule import Exchange, Round

__all__ = ["Algorithm", "algorithm", "fitted", "get", "names", "one_block", "per_rank", "per_segment", "unknown"]

Generator = Callable[..., Iterator[Exchange | tuple[Exchange, ...]]]


@dataclass(frozen=True)
class Algorithm:
    """A schedule for every rank of every size, and what is known of it.

    Attributes
    ----------
    name : str
        With the parameter, where it was given: ``knomial_tree:4``.
    generate : callable
        ``generate(rank, size)``, or with a parameter ``generate(rank, size, value)``, yields exchanges or tuples of
        them; block numbers may be given modulo B.
    blocks_of : callable
        ``blocks_of(size)``, or with a parameter ``blocks_of(size, value)``, is B.
    ordered : bool
        True if operands are combined in rank order, so that non-commutative operators may be used.
    cost : Cost
    source : str
        Where the algorithm comes from.
    parameter : Parameter or None
    value : int or None
        Of the parameter.
    """

    name: str
    generate: Generator
    blocks_of: Callable[..., int]
    ordered: bool
    cost: Cost
    source: str
    parameter: Parameter | None = None
    value: int | None = None

    def blocks(self, size: int) -> int:
        """B, the number of blocks into which the buffer is cut."""
        return self.blocks_of(size, *self._values)

    def schedule(self, rank: int, size: int) -> list[Round]:
        """The rounds of one rank, block numbers within 0 .. B-1."""
        blocks = self.blocks(size)
        return [tuple(exchange.modulo(blocks) for exchange in exchanges) for exchanges in self.rounds(rank, size)]

    def rounds(self, rank: int, size: int) -> Iterator[Round]:
        """The same one by one, block numbers being meant modulo B: for thousands of ranks at once."""
        for step in self.generate(rank, size, *self._values):
            yield (step,) if isinstance(step, Exchange) else step

    @property
    def symbols(self) -> dict[str, int]:
        """What the formulas of ``cost`` need beside p."""
        return {self.parameter.symbol: self.value} if self.parameter else {}

    @property
    def _values(self) -> tuple[int, ...]:
        return (self.value,) if self.parameter else ()


_algorithms: dict[str, Algorithm] = {}


def algorithm(
    name: str,
    *,
    blocks: Callable[..., int],
    ordered: bool,
    rounds: str,
    sent: str,
    reduced: str,
    source: str,
    parameter: Parameter | None = None,
) -> Callable[[Generator], Generator]:
    """Register the decorated generator under ``name``; a name can be taken once."""

    def register(generate: Generator) -> Generator:
        if name in _algorithms:
            raise ValueError(f"algorithm {name!r} is registered already, by {_algorithms[name].generate.__module__}")
        cost = Cost(Formula(rounds), Formula(sent), Formula(reduced))
        value = parameter.default if parameter else None
        _algorithms[name] = Algorithm(name, generate, blocks, ordered, cost, source, parameter, value)
        return generate

    return register


def names(*, ordered: bool | None = None) -> list[str]:
    """Registered names in order of registration; with ``ordered`` only those that do (or do not) keep order."""
    return [a.name for a in _algorithms.values() if ordered is None or a.ordered == ordered]


@lru_cache(maxsize=1024)
def get(name: str) -> Algorithm:
    """The algorithm called ``name``, which may give the parameter: ``knomial_tree:4``.

    Raises
    ------
    ValueError
        If there is none; the message lists all names.
    """
    base, colon, text = str(name).partition(":")
    found = _algorithms.get(base)
    if found is None:
        raise unknown(name, names())
    if not colon:
        return found
    if found.parameter is None:
        raise ValueError(f"algorithm: {base} takes no parameter, got {name!r}")
    try:
        value = found.parameter.parse(text)
    except ValueError as error:
        raise ValueError(f"algorithm: {base} is followed by its {error}") from None
    return replace(found, name=f"{base}:{value}", value=value)


def fitted(name: str, size: int, nbytes: int) -> Algorithm:
    """The algorithm called ``name``, its parameter chosen for a buffer where the name leaves it open.

    Raises
    ------
    ValueError
        As :func:`get`.
    """
    found = get(name)
    if found.parameter is None or ":" in name:
        return found
    return get(f"{name}:{found.parameter.fit(size, nbytes)}")


def unknown(name: str, known: list[str]) -> ValueError:
    """The error for a name that is none of ``known``, with the nearest one suggested."""
    near = difflib.get_close_matches(str(name).partition(":")[0], known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return ValueError(f"algorithm: unknown name {name!r}; known are {', '.join(known)}.{hint}")


def per_rank(size: int) -> int:
    """One block for each rank."""
    return size


def one_block(size: int, *parameter: int) -> int:
    """The whole buffer as a single block."""
    return 1


def per_segment(size: int, segments: int) -> int:
    """One block for each segment."""
    return segments
