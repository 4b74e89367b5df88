"""Ring allreduce: each rank only ever sends to its right neighbour and receives from its left one."""

from .registry import algorithm, per_rank
from .schedule import COPY, REDUCE, sendrecv


@algorithm(
    "ring",
    blocks=per_rank,
    ordered=False,
    rounds="2*(p-1)",
    sent="2*(p-1)/p",
    reduced="(p-1)/p",
    source="P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, JPDC 2009",
)
def ring(rank, size):
    """Partial sums travel once around the ring; then the finished blocks do."""
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):  # reduce-scatter
        yield sendrecv(right, rank - step, left, rank - step - 1, REDUCE)
    for step in range(size - 1):  # allgather
        yield sendrecv(right, rank + 1 - step, left, rank - step, COPY)
