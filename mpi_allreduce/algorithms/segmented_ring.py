"""Segmented ring: the blocks of a ring in segments, so that the first of them goes on while the others arrive."""

from .parameters import MOST_SEGMENTS, Parameter
from .registry import algorithm
from .schedule import COPY, REDUCE, sendrecv

SEGMENT_BYTES = 128 << 10  # is still in the cache when it is reduced


def _fit(size: int, nbytes: int) -> int:
    return min(max(nbytes // size // SEGMENT_BYTES, 1), MOST_SEGMENTS)


@algorithm(
    "segmented_ring",
    parameter=Parameter("segments", "S", 1, MOST_SEGMENTS, 2, _fit),
    blocks=lambda size, segments: size * segments,
    ordered=False,
    rounds="2*(p-1)*S",
    sent="2*(p-1)/p",
    reduced="(p-1)/p",
    source="J. Pjesivac-Grbovic: Towards automatic and adaptive optimizations of MPI collective operations, 2007",
)
def segmented_ring(rank, size, segments):
    """A ring whose every step is S rounds; a segment is sent S rounds after it was reduced."""
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):  # reduce-scatter
        for s in range(segments):
            yield sendrecv(right, (rank - step) * segments + s, left, (rank - step - 1) * segments + s, REDUCE)
    for step in range(size - 1):  # allgather
        for s in range(segments):
            yield sendrecv(right, (rank + 1 - step) * segments + s, left, (rank - step) * segments + s, COPY)
