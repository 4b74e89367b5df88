"""A block on the wire: a header, then its chunks.

::

    bytes 0-3   flags, see :class:`Flags`
    bytes 4-7   key of the run, uint32
    then        the chunks, each of CHUNK elements (the last one of what is left), as the codec writes them
"""

from collections.abc import Sequence
from enum import IntFlag
from functools import lru_cache

import numpy as np

from .codec import CHUNK, Codec, Coder, Glance
from .feedback import Observer

__all__ = ["HEADER_BYTES", "Flags", "Packer", "packet_bytes"]

HEADER_BYTES = 8
FLOAT32 = np.dtype(np.float32)
GOLDEN = 0x9E3779B1  # spreads consecutive numbers over 32 bits


class Flags(IntFlag):
    """What happened to any of the contributions in a block, on its way here."""

    NONE = 0
    NONFINITE = 1
    OVERFLOW = 2


def packet_bytes(codec: Codec, count: int) -> int:
    """Bytes of a block of ``count`` elements on the wire, or at most so many; nothing at all if it is empty."""
    if count == 0:
        return 0
    whole, rest = divmod(count, CHUNK)
    return HEADER_BYTES + whole * codec.chunk_bytes(CHUNK) + (codec.chunk_bytes(rest) if rest else 0)


class Packer:
    """Encodes and decodes blocks.

    Parameters
    ----------
    codec : Codec
    dtype : dtype
        Of the blocks: float16, bfloat16, float32, float64.  The codec sees float32.

    Attributes
    ----------
    key : int
        Of the run: the same on all ranks, another one for each run.
    whole : float
        Largest magnitude of the contribution, see :meth:`look_over`.
    """

    def __init__(self, codec: Codec, dtype: np.dtype):
        self.codec = codec
        self.key = 0
        self.whole = 0.0
        self._coder = _coder(codec)
        self._values = None if dtype == FLOAT32 else _scratch("values", FLOAT32)
        self._decoded = _scratch("decoded", FLOAT32)
        self._sum = _scratch("sum", dtype)

    def look_over(self, contribution: np.ndarray) -> None:
        """Find the largest magnitude, if the codec needs to know it."""
        if self.codec.needs_whole:
            peaks = [_peak(contribution[part]) for part in _parts(contribution.size)]
            self.whole = float(np.max(peaks, initial=0.0))  # NaN if any is

    def encode(
        self,
        values: np.ndarray,
        wire: np.ndarray,
        first: int,
        flags: int,
        feedback: Observer | None = None,
        *,
        contribution: bool = False,
    ) -> int:
        """Write a block.

        Parameters
        ----------
        values : ndarray, shape (count,)
        wire : ndarray of uint8, shape (packet_bytes,)
        first : int
            Number of the block's first element in the buffer.
        flags : int
            Already known of the block.
        feedback : Observer, optional
            Is told of each chunk what was read and what will be decoded.
        contribution : bool
            Whether it is a part of the contribution that was looked over.  Of sums that several ranks hold nothing may
            count but their own numbers.

        Returns
        -------
        int
            Bytes used.
        """
        used = HEADER_BYTES
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            for part in _parts(values.size):
                chunk = self._as_float32(values[part])
                peak = _peak(chunk)
                flags |= self._flags(peak, values[part])
                whole = float(np.maximum(self.whole, peak)) if contribution else peak
                glance = Glance(peak, whole, self._key(first + part.start))
                length = self._coder.encode(chunk, wire[used:], glance)
                if feedback is not None:
                    decoded = self._decoded[: chunk.size]
                    self._coder.decode(wire[used:], decoded, glance.key)
                    feedback(slice(first + part.start, first + part.stop), values[part], decoded)
                used += length
        header = wire[:HEADER_BYTES].view(np.uint32)
        header[0], header[1] = flags, self.key
        return used

    def flags(self, wire: np.ndarray) -> int:
        """Of an encoded block."""
        return int(wire[0])

    def decode(self, wire: np.ndarray, out: np.ndarray, first: int) -> None:
        """Read a block into ``out``, shape (count,)."""
        direct = out.dtype == FLOAT32
        for part, decoded in self._chunks(wire, out, first):
            if not direct:
                np.copyto(out[part], decoded, casting="unsafe")

    def combine(self, operands: Sequence[tuple[bool, np.ndarray]], out: np.ndarray, first: int) -> None:
        """``out = operands[0] + operands[1] + ...`` from left to right, some of them encoded.

        Parameters
        ----------
        operands : sequence of (bool, ndarray)
            True and a packet, or False and numbers; ``out`` may be one of the latter.
        out : ndarray, shape (count,)
        first : int
            Number of the block's first element in the buffer.
        """
        positions = [HEADER_BYTES] * len(operands)
        keys = [int(array[4:HEADER_BYTES].view(np.uint32)[0]) if encoded else 0 for encoded, array in operands]
        for part in _parts(out.size):
            target = out[part]
            total = None
            for i, (encoded, array) in enumerate(operands):
                if encoded:
                    value = self._decoded[: target.size]
                    key = _mixed(keys[i], first + part.start)
                    positions[i] += self._coder.decode(array[positions[i] :], value, key)
                else:
                    value = array[part]
                last = i == len(operands) - 1
                if total is None:
                    total = value
                    if encoded and not last:
                        total = self._sum[: target.size]
                        np.copyto(total, value, casting="unsafe")
                else:
                    place = target if last else self._sum[: target.size]
                    np.add(total, value, out=place, casting="unsafe")
                    total = place

    def _chunks(self, wire: np.ndarray, out: np.ndarray, first: int):
        key, used = int(wire[4:HEADER_BYTES].view(np.uint32)[0]), HEADER_BYTES
        for part in _parts(out.size):
            decoded = out[part] if out.dtype == FLOAT32 else self._decoded[: part.stop - part.start]
            used += self._coder.decode(wire[used:], decoded, _mixed(key, first + part.start))
            yield part, decoded

    def _as_float32(self, values: np.ndarray) -> np.ndarray:
        if self._values is None:
            return values
        chunk = self._values[: values.size]
        np.copyto(chunk, values, casting="unsafe")
        return chunk

    def _flags(self, peak: float, values: np.ndarray) -> int:
        if peak <= self.codec.largest:
            return Flags.NONE
        # What is infinite in float32 may have been finite in float64.
        return Flags.OVERFLOW if np.isfinite(_peak(values)) else Flags.NONFINITE

    def _key(self, first: int) -> int:
        return _mixed(self.key, first)


@lru_cache(maxsize=64)
def _coder(codec: Codec) -> Coder:
    """All packers of a process share the scratch memory of chunks: one chunk is handled at a time, by one thread."""
    return codec.coder()


@lru_cache(maxsize=64)
def _scratch(purpose: str, dtype: np.dtype) -> np.ndarray:
    return np.empty(CHUNK, dtype)


def _parts(count: int):
    return (slice(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))


def _peak(values: np.ndarray) -> float:
    """The largest magnitude; inf or NaN where not all are finite.  Two reductions cost less than abs and one."""
    if values.size == 0:
        return 0.0
    return float(np.maximum(values.max(), -values.min()))


def _mixed(key: int, first: int) -> int:
    """One number of a run and a place in the buffer."""
    return (key * GOLDEN + first) & 0xFFFFFFFF
