"""Pipelined chain: segments are handed from rank to rank down to rank 0, and the sums back up."""

from .parameters import segments
from .registry import algorithm, per_segment
from .schedule import REDUCE_RIGHT
from .trees import Node, pipelined


@algorithm(
    "pipelined_chain",
    parameter=segments(depth=lambda size: size - 2),
    blocks=per_segment,
    ordered=True,
    rounds="(p>1)*2*(p + S - 2)",
    sent="min(p-1, 2)",
    reduced="min(p-1, 1)",
    source="J. Pjesivac-Grbovic et al.: Performance analysis of MPI collective operations, Cluster Computing 2007",
)
def pipelined_chain(rank, size, segments):
    """A tree without branches: each rank's only child is the next rank."""
    children = ((rank + 1, REDUCE_RIGHT),) if rank + 1 < size else ()
    return pipelined(Node(rank - 1 if rank else None, children, rank), segments)
