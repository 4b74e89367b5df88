"""Which parameters are reduced together: buckets in the order in which gradients become ready.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Bucket", "by_bytes", "by_layers"]

BUCKET_BYTES = 25 << 20
FIRST_BYTES = 1 << 20  # a small first bucket starts the wire early


@dataclass(frozen=True)
class Bucket:
    """Parameters whose gradients lie one after the other in one buffer.

    Attributes
    ----------
    names : tuple of str
        In the order in which their gradients become ready.
    counts : tuple of int
        Elements of each.
    """

    names: tuple[str, ...]
    counts: tuple[int, ...]

    @property
    def count(self) -> int:
        """Elements of all."""
        return sum(self.counts)

    @property
    def places(self) -> dict[str, slice]:
        """Where each parameter is in the buffer."""
        places, start = {}, 0
        for name, count in zip(self.names, self.counts, strict=True):
            places[name] = slice(start, start + count)
            start += count
        return places


def by_bytes(
    counts: Mapping[str, int], order: Sequence[str], itemsize: int, limit: int = BUCKET_BYTES, first: int = FIRST_BYTES
) -> list[Bucket]:
    """Fill buckets up to ``limit`` bytes, the first one up to ``first``; a parameter is never split.

    Parameters
    ----------
    counts : mapping of str to int
        Elements of each parameter.
    order : sequence of str
        In which gradients become ready.
    itemsize : int
        Bytes of an element.
    limit, first : int
        Bytes.  A parameter that is larger gets a bucket of its own.
    """
    groups: list[list[str]] = []
    used = 0
    for name in order:
        size = counts[name] * itemsize
        cap = min(first, limit) if len(groups) <= 1 else limit
        if not groups or (groups[-1] and used + size > cap):
            groups.append([])
            used = 0
        groups[-1].append(name)
        used += size
    return [_bucket(counts, group) for group in groups]


def by_layers(counts: Mapping[str, int], order: Sequence[str], layers: int) -> list[Bucket]:
    """``layers`` parameters in each bucket, fewer in the last."""
    return [_bucket(counts, order[start : start + layers]) for start in range(0, len(order), layers)]


def _bucket(counts: Mapping[str, int], names: Sequence[str]) -> Bucket:
    return Bucket(tuple(names), tuple(counts[name] for name in names))
