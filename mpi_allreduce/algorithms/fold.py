"""Serving any number of ranks with an algorithm made for some numbers only, such as powers of two."""

from collections.abc import Callable, Iterable, Iterator

from .schedule import COPY, REDUCE_RIGHT, Exchange, receive, send

__all__ = ["fold", "largest_power_of_two"]

Core = Callable[[int, int, Callable[[int], int]], Iterator[Exchange]]


def largest_power_of_two(size: int) -> int:
    """The largest power of two that is <= ``size``."""
    return 1 << (size.bit_length() - 1)


def fold(rank: int, size: int, blocks: Iterable[int], core: Core, served: int = 0) -> Iterator[Exchange]:
    """Run ``core(virtual rank, q, to_rank)`` on q = ``served`` ranks, at least half of them; the others wait.

    By default q is the largest power of two <= size.

    The first 2 (size - q) ranks are paired: an odd rank hands its whole buffer to its even neighbour before the core,
    and takes the result afterwards.  Only neighbours are merged, so a core that keeps operand order still does.
    """
    q = served or largest_power_of_two(size)
    folded = 2 * (size - q)
    whole = tuple(blocks)

    def to_rank(virtual: int) -> int:
        return 2 * virtual if 2 * virtual < folded else virtual + size - q

    if rank >= folded:
        yield from core(rank - (size - q), q, to_rank)
    elif rank % 2:
        yield send(rank - 1, whole)
        yield receive(rank - 1, whole, COPY)
    else:
        yield receive(rank + 1, whole, REDUCE_RIGHT)
        yield from core(rank // 2, q, to_rank)
        yield send(rank + 1, whole)
