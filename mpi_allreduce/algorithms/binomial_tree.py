"""Binomial tree: reduce to rank 0, then broadcast down the same tree."""

from .registry import algorithm, one_block
from .schedule import COPY, REDUCE_RIGHT, receive, send


@algorithm(
    "binomial_tree",
    blocks=one_block,
    ordered=True,
    rounds="2*L",
    sent="L",
    reduced="L",
    source="R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH, 2005",
)
def binomial_tree(rank, size):
    """A rank's parent is the rank with its lowest set bit cleared; children are taken nearest first, so in order."""
    children = []
    distance = 1
    while distance < size and not rank & distance:
        if rank + distance < size:
            children.append(rank + distance)
        distance *= 2
    parent = rank - distance

    for child in children:  # reduce
        yield receive(child, 0, REDUCE_RIGHT)
    if rank > 0:
        yield send(parent, 0)
        yield receive(parent, 0, COPY)
    for child in reversed(children):  # broadcast, the deepest subtree first
        yield send(child, 0)
