"""A few elements instead of all: the largest, those above a threshold, or some at random."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .codec import CHUNK, Bound, Codec, Coder, Glance, padded
from .registry import codec

__all__ = ["RandomK", "Threshold", "TopK"]

PAIR_BYTES = 6  # a 16-bit index within the chunk, and a float32
COUNT_BYTES = 8  # before a number of pairs that varies
SAMPLE = 1024  # elements from which a threshold is estimated


@dataclass(frozen=True)
class TopK(Codec):
    """The fraction ``share`` of the elements of each chunk that has the largest magnitudes, at least one.

    Their values are exact.  NaN counts as largest.  Of equal magnitudes any may be taken, but the same ones on all
    ranks that hold the same bits.
    """

    share: float

    sparse = True

    def kept(self, count: int) -> int:
        """Pairs of a chunk of ``count`` elements."""
        return min(count, max(1, round(self.share * count)))

    def chunk_bytes(self, count: int) -> int:
        return padded(PAIR_BYTES * self.kept(count))

    def bound(self) -> Bound:
        """What is dropped is no more than its share of the squares; for the smallest chunks a little less."""
        return Bound((1 - self.share / 2) ** 0.5)

    def coder(self) -> Coder:
        return _TopKCoder(self)


class _Pairs(Coder):
    """Reads and writes pairs: all values first, then all indices."""

    def _write(self, values: np.ndarray, chosen: np.ndarray, wire: np.ndarray) -> int:
        k = chosen.size
        np.take(values, chosen, out=wire[: 4 * k].view(np.float32), mode="clip")
        np.copyto(wire[4 * k : PAIR_BYTES * k].view(np.uint16), chosen, casting="unsafe")
        wire[PAIR_BYTES * k : padded(PAIR_BYTES * k)] = 0
        return padded(PAIR_BYTES * k)

    def _read(self, wire: np.ndarray, k: int, out: np.ndarray) -> int:
        out[:] = 0
        out[wire[4 * k : PAIR_BYTES * k].view(np.uint16)] = wire[: 4 * k].view(np.float32)
        return padded(PAIR_BYTES * k)


class _TopKCoder(_Pairs):
    def __init__(self, codec: TopK):
        self.codec = codec
        self._magnitudes = np.empty(CHUNK, np.float32)

    def encode(self, values, wire, glance: Glance) -> int:
        k = self.codec.kept(values.size)
        magnitudes = np.abs(values, out=self._magnitudes[: values.size])
        return self._write(values, largest(magnitudes, k), wire)

    def decode(self, wire, out, key: int) -> int:
        return self._read(wire, self.codec.kept(out.size), out)


def largest(magnitudes: np.ndarray, k: int) -> np.ndarray:
    """Indices, ascending, of the k largest.

    Selecting among all is slow; so candidates are found first, by a threshold estimated from a sample.
    """
    count = magnitudes.size
    if count > 4 * SAMPLE and k <= count // 4:
        floor = _estimate(magnitudes, 1.5 * k / count + 8 / SAMPLE)
        candidates = np.flatnonzero(~(magnitudes < floor))
        if candidates.size >= k:
            best = np.argpartition(magnitudes[candidates], candidates.size - k)[candidates.size - k :]
            return np.sort(candidates[best])
    return np.sort(np.argpartition(magnitudes, count - k)[count - k :])


def _estimate(magnitudes: np.ndarray, share: float) -> np.float32:
    """A magnitude that about ``share`` of the elements exceed."""
    sample = magnitudes[:: max(magnitudes.size // SAMPLE, 1)]
    rank = max(sample.size - 1 - round(share * sample.size), 0)
    return np.partition(sample, rank)[rank]


@dataclass(frozen=True)
class Threshold(Codec):
    """Elements above a threshold, which adapts so that a fraction ``share`` of them is sent.

    The threshold of each chunk is estimated from a sample of it.  So the number of pairs varies, up to twice the share;
    if more exceed the threshold, the largest are taken.
    """

    share: float

    fixed = False
    sparse = True

    def most(self, count: int) -> int:
        """Pairs of a chunk, at most."""
        return min(count, max(1, round(2 * self.share * count)))

    def chunk_bytes(self, count: int) -> int:
        return COUNT_BYTES + padded(PAIR_BYTES * self.most(count))

    def bound(self) -> Bound:
        """Whatever is sent is exact."""
        return Bound(1.0)

    def coder(self) -> Coder:
        return _ThresholdCoder(self)


class _ThresholdCoder(_Pairs):
    def __init__(self, codec: Threshold):
        self.codec = codec
        self._magnitudes = np.empty(CHUNK, np.float32)

    def encode(self, values, wire, glance: Glance) -> int:
        count = values.size
        magnitudes = np.abs(values, out=self._magnitudes[:count])
        floor = _estimate(magnitudes, self.codec.share)
        chosen = np.flatnonzero(~(magnitudes < floor)) if floor > 0 else np.flatnonzero(magnitudes)
        if chosen.size > self.codec.most(count):
            chosen = largest(magnitudes, self.codec.most(count))
        wire[:COUNT_BYTES].view(np.uint64)[0] = chosen.size
        return COUNT_BYTES + self._write(values, chosen, wire[COUNT_BYTES:])

    def decode(self, wire, out, key: int) -> int:
        k = int(wire[:COUNT_BYTES].view(np.uint64)[0])
        return COUNT_BYTES + self._read(wire[COUNT_BYTES:], k, out)


@dataclass(frozen=True)
class RandomK(Codec):
    """A fraction ``share`` of the elements, chosen at random: the same ones on all ranks, other ones in each run.

    Indices need not travel, as they follow from the key.  Their values are exact.
    """

    share: float

    chance = True
    sparse = True

    def kept(self, count: int) -> int:
        """Elements of a chunk."""
        return min(count, max(1, round(self.share * count)))

    def chunk_bytes(self, count: int) -> int:
        return padded(4 * self.kept(count))

    def bound(self) -> Bound:
        """Anything may be dropped."""
        return Bound(1.0)

    def coder(self) -> Coder:
        return _RandomKCoder(self)


class _RandomKCoder(Coder):
    def __init__(self, codec: RandomK):
        self.codec = codec

    def encode(self, values, wire, glance: Glance) -> int:
        chosen = _chosen(glance.key, values.size, self.codec.kept(values.size))
        np.take(values, chosen, out=wire[: 4 * chosen.size].view(np.float32), mode="clip")
        wire[4 * chosen.size : padded(4 * chosen.size)] = 0
        return padded(4 * chosen.size)

    def decode(self, wire, out, key: int) -> int:
        chosen = _chosen(key, out.size, self.codec.kept(out.size))
        out[:] = 0
        out[chosen] = wire[: 4 * chosen.size].view(np.float32)
        return padded(4 * chosen.size)


@lru_cache(maxsize=64)  # all peers' packets of a chunk need the same
def _chosen(key: int, count: int, k: int) -> np.ndarray:
    random = np.random.Generator(np.random.SFC64(key))
    return np.sort(random.choice(count, k, replace=False, shuffle=False))


def _check_share(share: float) -> float:
    if not 0 < share <= 1:
        raise ValueError(f"codec: share is the fraction of elements that is sent, above 0 and up to 1, got {share:g}")
    return share


@codec("topk", default="0.01", share=float)
def topk(name: str, share: float = 0.01) -> Codec:
    """Make a top-k codec."""
    return TopK(name, _check_share(share))


@codec("threshold", default="0.01", share=float)
def threshold(name: str, share: float = 0.01) -> Codec:
    """Make a threshold codec."""
    return Threshold(name, _check_share(share))


@codec("randomk", default="0.01", share=float)
def randomk(name: str, share: float = 0.01) -> Codec:
    """Make a random-k codec."""
    return RandomK(name, _check_share(share))
