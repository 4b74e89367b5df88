"""Integers of 8, 4 or 2 bits with a scale for each group of elements; and the textbook's one scale for the tensor."""

from dataclasses import dataclass

import numpy as np

from .codec import CHUNK, Bound, Codec, Coder, Glance, padded
from .groups import Groups, check_block, scale_bytes
from .registry import codec

__all__ = ["Integers"]


@dataclass(frozen=True)
class Integers(Codec):
    """Each group of ``block`` elements is divided by its peak and rounded to whole numbers -top .. top.

    top is 127, 7 or 1 for 8, 4 and 2 bits.  What is not finite makes its group NaN.  With ``stochastic`` a number is
    rounded up with the probability of its fraction, so that the mean of the error is zero (QSGD); the choice follows
    from the key and from the numbers themselves.

    Source of stochastic rounding: D. Alistarh et al.: QSGD, NeurIPS 2017.
    """

    bits: int
    block: int
    stochastic: bool = False
    whole: bool = False  # the peak is that of the whole contribution

    @property
    def top(self) -> int:
        """The largest code."""
        return (1 << (self.bits - 1)) - 1

    @property
    def chance(self) -> bool:
        """Whether results vary from run to run."""
        return self.stochastic

    @property
    def needs_whole(self) -> bool:
        """Whether the peak of the whole contribution is needed."""
        return self.whole

    def chunk_bytes(self, count: int) -> int:
        return padded(scale_bytes(count, self.block) + code_bytes(count, self.bits))

    def bound(self) -> Bound:
        """Half a step (a whole one if stochastic), which may be in all but one element of a group."""
        if self.whole:
            return Bound(np.inf)
        step = (1.0 if self.stochastic else 0.5) / self.top
        return Bound(step * max(self.block - 1, 1) ** 0.5 + 2.0**-22)

    def coder(self) -> Coder:
        return _IntegerCoder(self)


class _IntegerCoder(Coder):
    def __init__(self, codec: Integers):
        self.codec = codec
        self.groups = Groups(codec.block, codec.top)
        self._codes = np.empty(CHUNK + 3, np.int8)
        self._random = np.empty(CHUNK, np.float32) if codec.stochastic else None

    def encode(self, values, wire, glance: Glance) -> int:
        count, start = values.size, self.groups.bytes(values.size)
        scaled = self.groups.scale(values, wire, glance.whole if self.codec.whole else None)
        if self._random is None:
            np.rint(scaled, out=scaled)
        else:
            _round_at_random(scaled, self._random[:count], glance.key)
        end = start + code_bytes(count, self.codec.bits)
        np.clip(scaled, -self.codec.top, self.codec.top, out=scaled)  # a rounded reciprocal may be a little too large
        scaled[np.isnan(scaled)] = 0
        self._write(scaled, wire[start:end])
        used = padded(end)
        wire[end:used] = 0
        return used

    def decode(self, wire, out, key: int) -> int:
        start = self.groups.bytes(out.size)
        end = start + code_bytes(out.size, self.codec.bits)
        self._read(wire[start:end], out)
        self.groups.unscale(out, wire)
        return padded(end)

    def _write(self, scaled: np.ndarray, wire: np.ndarray) -> None:
        bits, count = self.codec.bits, scaled.size
        if bits == 8:
            np.copyto(wire.view(np.int8), scaled, casting="unsafe")
            return
        codes = self._codes[: wire.size * 8 // bits]
        np.copyto(codes[:count], scaled, casting="unsafe")
        codes[count:] = 0
        codes &= (1 << bits) - 1
        lanes = codes.view(np.uint8).reshape(8 // bits, -1)  # element i of each lane shares a byte
        np.copyto(wire, lanes[0])
        for lane, packed in enumerate(lanes[1:], 1):
            np.left_shift(packed, lane * bits, out=packed)
            np.bitwise_or(wire, packed, out=wire)

    def _read(self, wire: np.ndarray, out: np.ndarray) -> None:
        bits = self.codec.bits
        if bits == 8:
            np.copyto(out, wire.view(np.int8))
            return
        codes = self._codes[: wire.size * 8 // bits]
        lanes = codes.reshape(8 // bits, -1)
        for lane, unpacked in enumerate(lanes):
            np.left_shift(wire, 8 - bits * (lane + 1), out=unpacked.view(np.uint8))
        np.right_shift(codes, 8 - bits, out=codes)  # extends the sign
        np.copyto(out, codes[: out.size])


def code_bytes(count: int, bits: int) -> int:
    """Bytes of ``count`` codes."""
    return -(-count * bits // 8)


def _round_at_random(scaled: np.ndarray, random: np.ndarray, key: int) -> None:
    """Up with the probability of the fraction."""
    content = int(np.add.reduce(scaled.view(np.uint32), dtype=np.uint64))
    np.random.Generator(np.random.SFC64([key, content & 0xFFFFFFFF])).random(out=random, dtype=np.float32)
    np.add(scaled, random, out=scaled)
    np.floor(scaled, out=scaled)


@codec("int8", block=int, stochastic=bool, tensor=bool)
def int8(name: str, block: int = 256, stochastic: bool = False, tensor: bool = False) -> Codec:
    """Make a codec of 8-bit integers; ``tensor`` takes one scale for the whole buffer, as textbooks do."""
    return Integers(name, 8, CHUNK if tensor else check_block(block), stochastic, tensor)


@codec("int4", block=int, stochastic=bool)
def int4(name: str, block: int = 256, stochastic: bool = False) -> Codec:
    """Make a codec of 4-bit integers."""
    return Integers(name, 4, check_block(block), stochastic)


@codec("int2", block=int, stochastic=bool)
def int2(name: str, block: int = 256, stochastic: bool = False) -> Codec:
    """Make a codec of -1, 0, 1."""
    return Integers(name, 2, check_block(block), stochastic)
