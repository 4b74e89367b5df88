"""Circulant graph: as few bytes as a ring in 2 ceil(lg p) rounds, for every p."""

from .registry import algorithm, per_rank
from .schedule import COPY, REDUCE, sendrecv


@algorithm(
    "circulant",
    blocks=per_rank,
    ordered=False,
    rounds="2*L",
    sent="2*(p-1)/p",
    reduced="(p-1)/p",
    source="J. L. Traeff: Optimal, non-pipelined reduce-scatter and allreduce algorithms, arXiv 2410.14234, 2024",
)
def circulant(rank, size):
    """Halve the span of blocks that a rank is responsible for, rounding up, until only its own is left.

    Blocks rank, rank + 1, ... (modulo p) are a rank's working order.  With skips p > ceil(p/2) > ... > 1, the part of
    the span from ``skip`` on goes to the rank that far ahead, where it is the beginning of the span.
    """
    skips = []
    span = size
    while span > 1:
        skip = (span + 1) // 2
        skips.append((skip, span))
        span = skip

    for skip, span in skips:  # reduce-scatter
        ahead, behind = (rank + skip) % size, (rank - skip) % size
        yield sendrecv(ahead, range(rank + skip, rank + span), behind, range(rank, rank + span - skip), REDUCE)
    for skip, span in reversed(skips):  # allgather
        ahead, behind = (rank + skip) % size, (rank - skip) % size
        yield sendrecv(behind, range(rank, rank + span - skip), ahead, range(rank + skip, rank + span), COPY)
