"""Binary trees over consecutive ranks, numbered in order: left subtree, node, right subtree."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .schedule import COPY, REDUCE_LEFT, REDUCE_RIGHT, Action, Exchange, receive, send

__all__ = ["Node", "middle", "middle_odd", "pipelined", "place_in_tree"]


@dataclass(frozen=True)
class Node:
    """The place of a rank in a tree.

    Attributes
    ----------
    parent : int or None
        None at the root.
    children : tuple of (int, Action)
        At most two, and on which side of this rank's operand theirs stand.
    depth : int
        0 at the root.
    """

    parent: int | None
    children: tuple[tuple[int, Action], ...]
    depth: int


def middle(low: int, high: int) -> int:
    """The root of a balanced tree over low .. high-1."""
    return (low + high) // 2


def middle_odd(low: int, high: int) -> int:
    """The root of a balanced tree whose leaves are the ranks at even places; ``low`` is even."""
    return low if high - low == 1 else min((low + high - 1) // 2 | 1, high - 1)


def place_in_tree(rank: int, low: int, high: int, root_of: Callable[[int, int], int] = middle) -> Node:
    """Walk down from the root of the tree over low .. high-1 to ``rank``."""
    parent, depth = None, 0
    while (root := root_of(low, high)) != rank:
        parent, depth = root, depth + 1
        low, high = (low, root) if rank < root else (root + 1, high)
    sides = ((low, rank, REDUCE_LEFT), (rank + 1, high, REDUCE_RIGHT))
    children = tuple((root_of(first, last), action) for first, last, action in sides if first < last)
    return Node(parent, children, depth)


def pipelined(node: Node, segments: int) -> Iterator[tuple[Exchange, ...]]:
    """Reduce to the root and broadcast from it, each segment following the one before."""
    for step in range(segments + 1):  # reduce: one segment arrives while the one before goes on
        arriving = [receive(child, step, action) for child, action in node.children if step < segments]
        leaving = [send(node.parent, step - 1)] if node.parent is not None and step > 0 else []
        if arriving or leaving:
            yield (*arriving, *leaving)
    for step in range(segments + 1):  # broadcast
        arriving = [receive(node.parent, step, COPY)] if node.parent is not None and step < segments else []
        leaving = [send(child, step - 1) for child, _ in node.children if step > 0]
        if arriving or leaving:
            yield (*arriving, *leaving)
