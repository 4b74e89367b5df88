"""Shorter floating-point numbers: fp16, bf16, and the two 8-bit formats with a scale for each group."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from .codec import CHUNK, Bound, Codec, Coder, Glance, padded
from .groups import Groups, check_block, scale_bytes
from .registry import codec

__all__ = ["Bf16", "Fp8", "Fp16"]

HALF_INFINITY = 0x7C00
HALF_OVERFLOW = 65520.0  # what rounds to infinity
HALF_EXPONENT = 65536.0
SMALLEST_NORMAL = np.float32(2.0**-14)
FROM_HALF = np.float32(2.0**112)  # from a half's exponent, in a float32's place, to its value


@dataclass(frozen=True)
class Fp16(Codec):
    """IEEE half precision, rounded to nearest even.

    Magnitudes of 65520 and more overflow to infinity.  ``predivide`` (a power of two) divides before and multiplies
    behind, so that sums up to ``predivide`` times as large fit; what gets smaller than 6e-8 then vanishes.
    """

    predivide: float = 1.0

    @property
    def largest(self) -> float:
        """Larger magnitudes overflow."""
        return np.nextafter(HALF_OVERFLOW, 0) * self.predivide

    def chunk_bytes(self, count: int) -> int:
        return padded(2 * count)

    def bound(self) -> Bound:
        """Half a unit in the last place of 11 bits; below 2**-14 half the spacing of the subnormals."""
        return Bound(2.0**-11, 2.0**-25 * self.predivide)

    def coder(self) -> Coder:
        return _Fp16Coder(self)


class _Fp16Coder(Coder):
    """By operations on the float's bits, several times as fast as NumPy's casts, with the same result.

    Magnitudes from 2**-14 on are normal halves: 13 bits of the mantissa are rounded away to nearest even by an integer
    addition, the exponent's bias changes, and a shift leaves the half.  Smaller ones are subnormal: adding 0.5 makes
    the processor round them to multiples of 2**-24, and leaves them in the low bits.  Each magnitude, clipped to either
    range, goes both ways; the sum of both is the half, as each way turns 2**-14 into what the other one lacks.
    Chunks with numbers that become infinite or are NaN are left to NumPy.
    """

    def __init__(self, codec: Fp16):
        self.codec = codec
        self._divided = np.empty(CHUNK, np.float32) if codec.predivide != 1 else None
        self._magnitudes, self._clipped = np.empty((2, CHUNK), np.float32)
        self._bits = np.empty(CHUNK, np.int32)

    def encode(self, values, wire, glance: Glance) -> int:
        count, predivide = values.size, self.codec.predivide
        half = wire[: 2 * count].view(np.float16)
        if predivide != 1:
            values = np.divide(values, np.float32(predivide), out=self._divided[:count])
        if glance.peak < HALF_OVERFLOW * predivide:
            self._fast(values.view(np.int32), half.view(np.int16))
        else:
            np.copyto(half, values, casting="unsafe")
        return _pad(wire, 2 * count)

    def _fast(self, whole: np.ndarray, half: np.ndarray) -> None:
        count = whole.size
        bits, magnitudes, clipped = self._bits[:count], self._magnitudes[:count], self._clipped[:count]
        np.bitwise_and(whole, 0x7FFFFFFF, out=magnitudes.view(np.int32))
        np.maximum(magnitudes, SMALLEST_NORMAL, out=clipped)
        np.right_shift(clipped.view(np.int32), 13, out=bits)
        np.bitwise_and(bits, 1, out=bits)
        np.add(bits, 0xFFF - (113 << 23), out=bits)
        np.add(bits, clipped.view(np.int32), out=bits)
        np.right_shift(bits, 13, out=bits)
        np.minimum(magnitudes, SMALLEST_NORMAL, out=clipped)
        np.add(clipped, np.float32(0.5), out=clipped)
        np.add(bits, clipped.view(np.int32), out=bits)
        signs = magnitudes.view(np.int32)
        np.right_shift(whole, 16, out=signs)
        np.bitwise_and(signs, 0x8000, out=signs)
        np.bitwise_or(bits, signs, out=bits)
        np.copyto(half, bits, casting="unsafe")  # the low 16 bits

    def decode(self, wire, out, key: int) -> int:
        count = out.size
        half = wire[: 2 * count].view(np.int16)
        bits = out.view(np.int32)
        np.copyto(bits, half)  # extends the sign
        np.left_shift(bits, 13, out=bits)
        np.bitwise_and(bits, np.int32(0x8FFFE000 - (1 << 32)), out=bits)
        np.multiply(out, FROM_HALF, out=out)
        if not (out.max() < HALF_EXPONENT and out.min() > -HALF_EXPONENT):  # exponents of all ones: infinity or NaN
            np.copyto(out, half.view(np.float16))
        if self.codec.predivide != 1:
            np.multiply(out, np.float32(self.codec.predivide), out=out)
        return padded(2 * count)


@codec("fp16", predivide=float)
def fp16(name: str, predivide: float = 1.0) -> Codec:
    """Make an fp16 codec."""
    if not (1 <= predivide < 2**100 and np.frexp(predivide)[0] == 0.5):
        raise ValueError(f"codec: predivide is a power of two from 1 on, so that nothing is rounded, got {predivide:g}")
    return Fp16(name, predivide)


@dataclass(frozen=True)
class Bf16(Codec):
    """bfloat16: float32's range with 8 bits of mantissa, rounded to nearest even."""

    largest = float(np.nextafter(np.float32(2.0**127 * (2 - 2.0**-8)), np.float32(0)))

    def chunk_bytes(self, count: int) -> int:
        return padded(2 * count)

    def bound(self) -> Bound:
        """Half a unit in the last place of 8 bits."""
        return Bound(2.0**-8)

    def coder(self) -> Coder:
        return _Bf16Coder()


class _Bf16Coder(Coder):
    def encode(self, values, wire, glance: Glance) -> int:
        np.copyto(wire[: 2 * values.size].view(ml_dtypes.bfloat16), values, casting="unsafe")
        return _pad(wire, 2 * values.size)

    def decode(self, wire, out, key: int) -> int:
        np.copyto(out, wire[: 2 * out.size].view(ml_dtypes.bfloat16))
        return padded(2 * out.size)


@codec("bf16")
def bf16(name: str) -> Codec:
    """Make a bf16 codec."""
    return Bf16(name)


@dataclass(frozen=True)
class Fp8(Codec):
    """8-bit floating point, with a float32 scale for each group that takes its peak to the largest number.

    What is not finite makes its group NaN.
    """

    block: int
    dtype: np.dtype
    mantissa: int  # bits, the hidden one included

    def chunk_bytes(self, count: int) -> int:
        return padded(scale_bytes(count, self.block) + count)

    def bound(self) -> Bound:
        """Half a unit in the last place, and half of the smallest number for what is that much below the peak."""
        limits = ml_dtypes.finfo(self.dtype)
        tiny = float(limits.smallest_subnormal) / 2 / float(limits.max)
        return Bound(2.0**-self.mantissa + tiny * self.block**0.5)

    def coder(self) -> Coder:
        return _Fp8Coder(self)


class _Fp8Coder(Coder):
    def __init__(self, codec: Fp8):
        self.dtype = codec.dtype
        self.groups = Groups(codec.block, float(ml_dtypes.finfo(codec.dtype).max))

    def encode(self, values, wire, glance: Glance) -> int:
        count, start = values.size, self.groups.bytes(values.size)
        scaled = self.groups.scale(values, wire)
        np.copyto(wire[start : start + count].view(self.dtype), scaled, casting="unsafe")
        return _pad(wire, start + count)

    def decode(self, wire, out, key: int) -> int:
        count, start = out.size, self.groups.bytes(out.size)
        np.copyto(out, wire[start : start + count].view(self.dtype))
        self.groups.unscale(out, wire)
        return padded(start + count)


@codec("fp8_e4m3", block=int)
def fp8_e4m3(name: str, block: int = 256) -> Codec:
    """Make a codec of 4 bits of exponent and 3 of mantissa."""
    return Fp8(name, check_block(block), np.dtype(ml_dtypes.float8_e4m3fn), 4)


@codec("fp8_e5m2", block=int)
def fp8_e5m2(name: str, block: int = 256) -> Codec:
    """Make a codec of 5 bits of exponent and 2 of mantissa."""
    return Fp8(name, check_block(block), np.dtype(ml_dtypes.float8_e5m2), 3)


def _pad(wire: np.ndarray, used: int) -> int:
    """Zero what is left of the last 8 bytes, so that equal numbers make equal bytes."""
    end = padded(used)
    wire[used:end] = 0
    return end
