"""The naive allreduce: everything goes through rank 0."""

from .registry import algorithm, one_block
from .schedule import COPY, REDUCE_RIGHT, receive, send


@algorithm(
    "linear",
    blocks=one_block,
    ordered=True,
    rounds="2*(p-1)",
    sent="p-1",
    reduced="p-1",
    source="the textbooks' baseline; Open MPI's basic_linear",
)
def linear(rank, size):
    """Rank 0 receives and reduces every buffer in rank order, then sends the result to one rank after another."""
    if rank == 0:
        for peer in range(1, size):
            yield receive(peer, 0, REDUCE_RIGHT)
        for peer in range(1, size):
            yield send(peer, 0)
    else:
        yield send(0, 0)
        yield receive(0, 0, COPY)
