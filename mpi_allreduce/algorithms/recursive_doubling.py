"""Recursive doubling: whole buffers swapped at distances 1, 2, 4, ..."""

from .fold import fold
from .registry import algorithm, one_block
from .schedule import reduce_from, sendrecv


@algorithm(
    "recursive_doubling",
    blocks=one_block,
    ordered=True,
    rounds="k + 2*fold",
    sent="k + fold",
    reduced="k + fold",
    source="R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH, 2005",
)
def recursive_doubling(rank, size):
    """After the round at distance d, aligned groups of 2d ranks hold the same sum."""
    return fold(rank, size, (0,), _butterfly)


def _butterfly(rank, size, to_rank):
    distance = 1
    while distance < size:
        peer = rank ^ distance
        yield sendrecv(to_rank(peer), 0, to_rank(peer), 0, reduce_from(peer, rank))
        distance *= 2
