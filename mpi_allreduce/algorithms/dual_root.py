"""Dual root: two trees whose roots swap sums; while a segment climbs, an earlier one descends by the same exchange."""

from .parameters import segments
from .registry import algorithm, per_segment
from .schedule import COPY, Exchange, reduce_from, sendrecv
from .trees import middle, place_in_tree


@algorithm(
    "dual_root",
    parameter=segments(depth=lambda size: 4 * size.bit_length()),
    blocks=per_segment,
    ordered=True,
    rounds="<= min(p-1, 3)*S + max(4*L - 9, L - 1, 0)",
    sent="min(3, (p+1)//2, p-1)",
    reduced="min(3, (p+1)//2, p-1)",
    source="J. L. Traeff: A doubly-pipelined, dual-root reduction-to-all algorithm and implementation, "
    "arXiv 2109.12626, 2021",
)
def dual_root(rank, size, segments):
    """The lower half of the ranks is one tree, the upper half the other; operands keep their order."""
    half = size // 2
    low, high = (0, half) if rank < half else (half, size)
    node = place_in_tree(rank, low, high)
    valid = range(segments)
    for step in range(segments + node.depth + 1):
        finished = step - node.depth  # the segment that the parent has just received
        for child, action in node.children:
            sent, received = _those(valid, finished - 1), _those(valid, step)
            if sent or received:
                yield _swap(child, sent, received, action)
        if node.parent is not None:
            sent, received = _those(valid, step), _those(valid, finished)
            if sent or received:
                yield _swap(node.parent, sent, received, COPY)
        elif half and step in valid:
            twin = middle(half, size) if low == 0 else middle(0, half)
            yield sendrecv(twin, step, twin, step, reduce_from(twin, rank))


def _those(valid: range, segment: int) -> tuple[int, ...]:
    return (segment,) if segment in valid else ()


def _swap(peer, sent, received, action) -> Exchange:
    return Exchange(peer if sent else None, sent, peer if received else None, received, action)
