"""What textbooks say of trees and rings, held against what was simulated.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .clock import Simulated

__all__ = ["TREE_AND_RING", "Claim", "Run", "crossing", "fastest", "textbook"]

TREE_AND_RING = ("binomial_tree", "ring")

Run = tuple[str, int, int]
"""Algorithm, ranks, bytes."""


def crossing(sizes: Sequence[int], first: Sequence[float], second: Sequence[float]) -> float | None:
    """The size from which on ``second`` is faster than ``first``; None if it is not at the largest one.

    Between sizes times are taken to lie on straight lines, as latency and bandwidth make them; 0 if ``second`` is
    faster at all sizes.

    Parameters
    ----------
    sizes : sequence of int
        Bytes, ascending.
    first, second : sequence of float
        Seconds.
    """
    ahead = [a - b for a, b in zip(first, second, strict=True)]
    if ahead[-1] <= 0:
        return None
    for (low, high), (before, after) in reversed(list(zip(pairwise(sizes), pairwise(ahead), strict=True))):
        if before <= 0:
            return low + (high - low) * before / (before - after)
    return 0.0


def fastest(found: Mapping[Run, Simulated], names: Sequence[str], ranks: int, sizes: Sequence[int]) -> list[tuple]:
    """(algorithm, the size from which on it is the fastest), by size; the first from the smallest simulated."""
    winners = [min(names, key=lambda name: found[name, ranks, size].seconds) for size in sizes]
    spans: list[tuple[str, float]] = [(winners[0], sizes[0])]
    for i, (before, after) in enumerate(pairwise(winners)):
        if before != after:
            both = ([found[name, ranks, size].seconds for size in sizes[i : i + 2]] for name in (before, after))
            spans.append((after, crossing(sizes[i : i + 2], *both)))
    return spans


@dataclass(frozen=True)
class Claim:
    """Tree and ring on so many ranks.

    Attributes
    ----------
    ranks : int
    crossing : float or None
        Bytes from which on the ring is faster; None if it never is.
    small, large : float
        The ring's time over the tree's, in the smallest and the largest buffer.
    root : dict of str to float
        By algorithm: buffers that rank 0 sends.
    growth : float
        The ring's time in the largest buffer over that on the fewest ranks; bandwidth alone makes it 2 (p - 1) / p
        over the same of the fewest.
    """

    ranks: int
    crossing: float | None
    small: float
    large: float
    root: dict[str, float]
    growth: float


def textbook(
    found: Mapping[Run, Simulated], names: Sequence[str], ranks: Sequence[int], sizes: Sequence[int]
) -> list[Claim]:
    """For each number of ranks; nothing unless both tree and ring are among the names.

    Notes
    -----
    Source of the claims: R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in
    MPICH, IJHPCA 19(1), 2005.
    """
    if not set(TREE_AND_RING) <= set(names):
        return []
    ring = TREE_AND_RING[1]
    claims = []
    for p in (p for p in ranks if p > 1):
        of_tree, of_ring = ([found[name, p, size].seconds for size in sizes] for name in TREE_AND_RING)
        fewest = found[ring, min(q for q in ranks if q > 1), sizes[-1]].seconds
        claims.append(
            Claim(
                ranks=p, crossing=crossing(sizes, of_tree, of_ring), small=of_ring[0] / of_tree[0],
                large=of_ring[-1] / of_tree[-1], growth=of_ring[-1] / fewest,
                root={name: float(found[name, p, sizes[-1]].sent_bytes[0]) / sizes[-1] for name in names},
            )
        )  # fmt: skip
    return claims
