"""Pairwise (direct) exchange: every block goes straight to its owner, and from there to everyone."""

from .registry import algorithm, per_rank
from .schedule import COPY, REDUCE, sendrecv


@algorithm(
    "pairwise",
    blocks=per_rank,
    ordered=False,
    rounds="2*(p-1)",
    sent="2*(p-1)/p",
    reduced="(p-1)/p",
    source="R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH, 2005",
)
def pairwise(rank, size):
    """Rank r owns block r.  Each contribution travels one hop only, which codecs that lose bits need."""
    for step in range(1, size):  # reduce-scatter
        ahead, behind = (rank + step) % size, (rank - step) % size
        yield sendrecv(ahead, ahead, behind, rank, REDUCE)
    for step in range(1, size):  # allgather
        ahead, behind = (rank + step) % size, (rank - step) % size
        yield sendrecv(ahead, rank, behind, behind, COPY)
