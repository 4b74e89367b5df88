"""Double binary tree: two trees, each for half of the buffer; who is busy in one is a leaf of the other."""

from .parameters import segments
from .registry import algorithm
from .schedule import COPY, REDUCE_LEFT, REDUCE_RIGHT, receive, send
from .trees import Node, middle_odd, place_in_tree


@algorithm(
    "double_binary_tree",
    parameter=segments(depth=int.bit_length),
    blocks=lambda size, segments: 2 * segments,
    ordered=False,
    rounds="(p>1)*2*(k + S - 1)",
    sent="(p>1)*min(2, (p+1)//2/2 + 1/2)",
    reduced="min(1, (p-1)/2)",
    source="P. Sanders, J. Speck, J. L. Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, "
    "Parallel Computing 2009",
)
def double_binary_tree(rank, size, segments):
    """S segments in each tree; all ranks follow one clock, which puts the messages of both trees into one round."""
    trees = list(enumerate((place_in_tree(rank, 0, size, middle_odd), _second_tree(rank, size))))
    depth = size.bit_length() - 1
    valid = range(segments)
    for clock in range(depth + segments - 1):  # reduce: what is at depth d at the clock t is segment t - (depth - d)
        exchanges = []
        for tree, node in trees:
            leaving = clock - (depth - node.depth)
            if leaving in valid and node.parent is not None:
                exchanges.append(send(node.parent, tree * segments + leaving))
            if leaving + 1 in valid:
                exchanges += [receive(child, tree * segments + leaving + 1, action) for child, action in node.children]
        if exchanges:
            yield tuple(exchanges)
    for clock in range(depth + segments - 1):  # broadcast
        exchanges = []
        for tree, node in trees:
            leaving = clock - node.depth
            if leaving in valid:
                exchanges += [send(child, tree * segments + leaving) for child, _ in node.children]
            if leaving + 1 in valid and node.parent is not None:
                exchanges.append(receive(node.parent, tree * segments + leaving + 1, COPY))
        if exchanges:
            yield tuple(exchanges)


def _second_tree(rank: int, size: int) -> Node:
    """The first tree with ranks renamed, so that even and odd places change: mirrored, or if p is odd shifted."""
    if size % 2:
        node = place_in_tree((rank - 1) % size, 0, size, middle_odd)
        parent = None if node.parent is None else (node.parent + 1) % size
        return Node(parent, tuple(((child + 1) % size, action) for child, action in node.children), node.depth)
    node = place_in_tree(size - 1 - rank, 0, size, middle_odd)
    parent = None if node.parent is None else size - 1 - node.parent
    other = {REDUCE_LEFT: REDUCE_RIGHT, REDUCE_RIGHT: REDUCE_LEFT}
    return Node(parent, tuple((size - 1 - child, other[action]) for child, action in node.children), node.depth)
