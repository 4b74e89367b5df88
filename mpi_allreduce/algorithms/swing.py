"""Swing: recursive halving and doubling at distances 1, 1, 3, 5, 11, ..., to the right and to the left in turn."""

from functools import cache

from .fold import fold
from .registry import algorithm
from .schedule import COPY, REDUCE, sendrecv


def even(size):
    """The largest even number of ranks, but at least one."""
    return max(size - size % 2, 1)


@algorithm(
    "swing",
    blocks=even,
    ordered=False,
    rounds="2*lg(e) + 2*(p>e)",
    sent="2*(e-1)/e + (p>e)",
    reduced="(e-1)/e + (p>e)",
    source="D. De Sensi, T. Bonato, D. Saam, T. Hoefler: Swing: short-cutting rings for higher bandwidth allreduce, "
    "NSDI 2024",
)
def swing(rank, size):
    """Each rank ends the reduce-scatter with one block; it keeps what those need whom it will still reach."""
    return fold(rank, size, range(even(size)), _swing, even(size))


def _swing(rank, size, to_rank):
    steps = (size - 1).bit_length()
    number = {block: i for i, block in enumerate(_reached(0, 0, size))}  # those sent together are then neighbours
    trail = []
    for step in range(steps):  # reduce-scatter
        peer = _peer(rank, step, size)
        mine, theirs = _reached(rank, step + 1, size), _reached(peer, step + 1, size)
        # What both can still deliver (if p is no power of two), each delivers itself.
        give, keep = (sorted(number[b] for b in blocks) for blocks in (_minus(theirs, mine), _minus(mine, theirs)))
        yield sendrecv(to_rank(peer), give, to_rank(peer), keep, REDUCE)
        trail.append((peer, give, keep))
    for peer, give, keep in reversed(trail):  # allgather
        yield sendrecv(to_rank(peer), keep, to_rank(peer), give, COPY)


def _peer(rank: int, step: int, size: int) -> int:
    distance = (1 - (-2) ** (step + 1)) // 3
    return (rank + (distance if rank % 2 == 0 else -distance)) % size


@cache
def _reached(rank: int, step: int, size: int) -> tuple[int, ...]:
    """The ranks that data of ``rank`` still comes to, from ``step`` on."""
    if step == (size - 1).bit_length():
        return (rank,)
    mine = _reached(rank, step + 1, size)
    return mine + _minus(_reached(_peer(rank, step, size), step + 1, size), mine)


def _minus(blocks: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    without = set(others)
    return tuple(block for block in blocks if block not in without)
