"""Rabenseifner's algorithm: reduce-scatter by recursive halving, allgather by recursive doubling."""

from .fold import fold, largest_power_of_two
from .registry import algorithm
from .schedule import COPY, reduce_from, sendrecv


@algorithm(
    "rabenseifner",
    blocks=largest_power_of_two,
    ordered=True,
    rounds="2*k + 2*fold",
    sent="2*(q-1)/q + fold",
    reduced="(q-1)/q + fold",
    source="R. Rabenseifner: Optimization of collective reduction operations, ICCS 2004",
)
def rabenseifner(rank, size):
    """Halve the buffer with ever farther peers, then put it together again on the way back.

    The nearest peer comes first and gets the largest message; so neighbouring ranges of ranks are merged, and operand
    order is kept (the common variant, farthest first, reorders).
    """
    return fold(rank, size, range(largest_power_of_two(size)), _halve_and_double)


def _halve_and_double(rank, size, to_rank):
    low, high = 0, size  # the blocks that this rank is still responsible for
    trail = []
    distance = 1
    while distance < size:  # reduce-scatter
        peer = rank ^ distance
        middle = (low + high) // 2
        lower, upper = range(low, middle), range(middle, high)
        keep, give = (upper, lower) if rank & distance else (lower, upper)
        yield sendrecv(to_rank(peer), give, to_rank(peer), keep, reduce_from(peer, rank))
        trail.append((peer, keep, give))
        low, high = keep.start, keep.stop
        distance *= 2
    for peer, keep, give in reversed(trail):  # allgather
        yield sendrecv(to_rank(peer), keep, to_rank(peer), give, COPY)
