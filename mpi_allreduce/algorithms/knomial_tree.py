"""k-nomial tree: a binomial tree in which a rank serves r - 1 children at a time."""

from .parameters import RADIX
from .registry import algorithm, one_block
from .schedule import COPY, REDUCE_RIGHT, receive, send


@algorithm(
    "knomial_tree",
    parameter=RADIX,
    blocks=one_block,
    ordered=True,
    rounds="2*l",
    sent="(r-1)*(l-1) + ceil(p/r**(l-1)) - 1",
    reduced="(r-1)*(l-1) + ceil(p/r**(l-1)) - 1",
    source="M. Wilkins et al.: Generalized collective algorithms for the exascale era, CLUSTER 2023",
)
def knomial_tree(rank, size, radix):
    """A rank's parent is the rank with its lowest digit (to base r) that is not 0 set to 0; children come in order."""
    levels = []
    distance = 1
    while distance < size and rank // distance % radix == 0:
        levels.append(range(rank + distance, min(rank + radix * distance, size), distance))
        distance *= radix
    parent = rank - rank // distance % radix * distance

    for children in filter(None, levels):  # reduce
        yield tuple(receive(child, 0, REDUCE_RIGHT) for child in children)
    if rank > 0:
        yield send(parent, 0)
        yield receive(parent, 0, COPY)
    for children in filter(None, reversed(levels)):  # broadcast, the deepest subtrees first
        yield tuple(send(child, 0) for child in children)
