"""One bit for each element: its sign; and the mean magnitude of its group."""

from dataclasses import dataclass

import numpy as np

from .codec import CHUNK, Bound, Codec, Coder, Glance, padded
from .groups import check_block
from .registry import codec

__all__ = ["Signs"]


@dataclass(frozen=True)
class Signs(Codec):
    """Signs, scaled by the mean magnitude of each group of ``block`` elements.

    Useless without error feedback, which makes it converge.  What is not finite makes its group NaN.

    Source: F. Seide et al.: 1-bit stochastic gradient descent, Interspeech 2014; the mean as scale, S. P. Karimireddy
    et al.: Error feedback fixes SignSGD, ICML 2019.
    """

    block: int

    def chunk_bytes(self, count: int) -> int:
        return padded(4 * -(-count // self.block) + -(-count // 8))

    def bound(self) -> Bound:
        """|x|^2 - |x|_1^2/n is less than |x|^2."""
        return Bound(1.0)

    def coder(self) -> Coder:
        return _SignCoder(self.block)


class _SignCoder(Coder):
    def __init__(self, block: int):
        self.block = block
        self._magnitudes = np.empty(CHUNK, np.float32)

    def encode(self, values, wire, glance: Glance) -> int:
        count = values.size
        magnitudes = np.abs(values, out=self._magnitudes[:count])
        starts = np.arange(0, count, self.block)
        scales = wire[: 4 * starts.size].view(np.float32)
        sums = np.add.reduceat(magnitudes, starts, dtype=np.float64)  # of float32's largest a sum would overflow
        np.copyto(scales, sums / np.diff(starts, append=count), casting="same_kind")
        scales[~np.isfinite(scales)] = np.nan
        signs = np.packbits(np.signbit(values))
        used = scales.nbytes + signs.size
        wire[scales.nbytes : used] = signs
        wire[used : padded(used)] = 0
        return padded(used)

    def decode(self, wire, out, key: int) -> int:
        count = out.size
        groups = -(-count // self.block)
        scales = wire[: 4 * groups].view(np.float32)
        used = scales.nbytes + -(-count // 8)
        negative = np.unpackbits(wire[scales.nbytes : used], count=count).view(np.int8)
        np.multiply(negative, np.int8(-2), out=negative)
        np.add(negative, np.int8(1), out=negative)
        np.copyto(out, negative)
        full = count // self.block * self.block
        whole = out[:full].reshape(-1, self.block)
        np.multiply(whole, scales[: len(whole), None], out=whole)
        if count > full:
            out[full:] *= scales[-1]
        return padded(used)


@codec("onebit", block=int)
def onebit(name: str, block: int = 256) -> Codec:
    """Make a codec of signs."""
    return Signs(name, check_block(block))
