"""An absolute bound of the error, and as few bytes as the numbers allow: a uniform grid, packed by pcodec."""

from dataclasses import dataclass

import numpy as np

from .codec import CHUNK, Bound, Codec, Coder, Glance, padded
from .registry import codec

__all__ = ["Bounded"]

LENGTH_BYTES = 8
RAW = 0  # a length that says that the codes follow as they are
LEVEL = 0  # of pcodec: higher ones are ten times as slow for a tenth fewer bytes
NAN, MINUS, PLUS = -(1 << 31), -(1 << 31) + 1, (1 << 31) - 1
TOP = float(PLUS - 1)


@dataclass(frozen=True)
class Bounded(Codec):
    """Every element is off by at most ``error`` (and the rounding of float32), however many bytes that takes.

    Numbers are rounded to multiples of 2 error, whose integers the library pcodec packs without loss.  Magnitudes above
    2**32 error overflow.  NaN and infinity are kept.

    Source: M. Loncaric et al.: pcodec, https://github.com/mwlon/pcodec
    """

    error: float

    fixed = False

    @property
    def largest(self) -> float:
        """Larger magnitudes overflow."""
        return TOP * 2 * self.error

    def chunk_bytes(self, count: int) -> int:
        return LENGTH_BYTES + padded(4 * count)

    def bound(self) -> Bound:
        """As asked for, and the rounding of float32."""
        return Bound(2.0**-24, self.error)

    def coder(self) -> Coder:
        return _BoundedCoder(self)


class _BoundedCoder(Coder):
    def __init__(self, codec: Bounded):
        from pcodec import ChunkConfig, DeltaSpec, ModeSpec, standalone

        self.step = 2 * codec.error
        self.largest = codec.largest
        self._pcodec = standalone
        self._config = ChunkConfig(LEVEL, mode_spec=ModeSpec.classic(), delta_spec=DeltaSpec.no_op())
        self._steps = np.empty(CHUNK, np.float64)
        self._codes = np.empty(CHUNK, np.int32)

    def encode(self, values, wire, glance: Glance) -> int:
        steps, codes = self._steps[: values.size], self._codes[: values.size]
        np.divide(values, self.step, out=steps)
        np.rint(steps, out=steps)
        if glance.peak <= self.largest:
            np.copyto(codes, steps, casting="unsafe")
        else:
            codes[:] = np.select([np.isnan(steps), steps > TOP, steps < -TOP], [NAN, PLUS, MINUS], steps)
        packed = np.frombuffer(self._pcodec.simple_compress(codes, self._config), np.uint8)
        raw = packed.size >= codes.nbytes
        if raw:
            packed = codes.view(np.uint8)
        wire[:LENGTH_BYTES].view(np.uint64)[0] = RAW if raw else packed.size
        used, end = LENGTH_BYTES + packed.size, LENGTH_BYTES + padded(packed.size)
        wire[LENGTH_BYTES:used] = packed
        wire[used:end] = 0
        return end

    def decode(self, wire, out, key: int) -> int:
        codes = self._codes[: out.size]
        length = int(wire[:LENGTH_BYTES].view(np.uint64)[0])
        if length == RAW:
            length = codes.nbytes
            codes[:] = wire[LENGTH_BYTES : LENGTH_BYTES + length].view(np.int32)
        else:
            self._pcodec.simple_decompress_into(wire[LENGTH_BYTES : LENGTH_BYTES + length].tobytes(), codes)
        steps = np.multiply(codes, self.step, out=self._steps[: out.size])
        np.copyto(out, steps, casting="same_kind")
        if codes.size and (codes.min() <= MINUS or codes.max() == PLUS):
            out[codes == NAN] = np.nan
            out[codes == PLUS] = np.inf
            out[codes == MINUS] = -np.inf
        return LENGTH_BYTES + padded(length)


@codec("bounded", default="0.001", needs="pcodec", error=float)
def bounded(name: str, error: float = 1e-3) -> Codec:
    """Make an error-bounded codec."""
    if not (0 < error < np.inf):
        raise ValueError(f"codec: error is the largest error of an element, above 0, got {error:g}")
    return Bounded(name, error)
