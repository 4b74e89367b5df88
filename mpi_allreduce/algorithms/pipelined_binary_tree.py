"""Pipelined binary tree: segments climb to the root of a balanced tree, and descend again."""

from .parameters import segments
from .registry import algorithm, per_segment
from .trees import pipelined, place_in_tree


@algorithm(
    "pipelined_binary_tree",
    parameter=segments(depth=int.bit_length),
    blocks=per_segment,
    ordered=True,
    rounds="(p>1)*2*(k + S - 1)",
    sent="min(p-1, 2 + (p>5))",
    reduced="min(p-1, 2)",
    source="J. Pjesivac-Grbovic et al.: Performance analysis of MPI collective operations, Cluster Computing 2007",
)
def pipelined_binary_tree(rank, size, segments):
    """The tree is numbered in order, so that operands keep theirs."""
    return pipelined(place_in_tree(rank, 0, size), segments)
