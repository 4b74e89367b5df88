"""Recursive multiplying: groups of r ranks swap whole buffers, so that the sums grow r times in each round."""

from functools import partial

from .cost import rounded_down
from .fold import fold
from .parameters import RADIX
from .registry import algorithm, one_block
from .schedule import reduce_from, sendrecv


@algorithm(
    "recursive_multiplying",
    parameter=RADIX,
    blocks=one_block,
    ordered=True,
    rounds="j + (m>1) + 2*(p>u)",
    sent="(r-1)*j + m - 1 + (p>u)",
    reduced="(r-1)*j + m - 1 + (p>u)",
    source="A. Ruefenacht, M. Bull, S. Booth: Generalisation of recursive doubling for AllReduce, Parallel Computing "
    "2017",
)
def recursive_multiplying(rank, size, radix):
    """Served directly are m r^j ranks (1 <= m < r; the last round is of radix m); others fold."""
    _, served = rounded_down(size, radix)
    return fold(rank, size, (0,), partial(_swap_in_groups, radix=radix), served)


def _swap_in_groups(rank, size, to_rank, radix):
    distance = 1
    while distance < size:
        members = min(radix, size // distance)
        first = rank - rank // distance % members * distance
        peers = [peer for peer in range(first, first + members * distance, distance) if peer != rank]
        yield tuple(sendrecv(to_rank(peer), 0, to_rank(peer), 0, reduce_from(peer, rank)) for peer in peers)
        distance *= members
