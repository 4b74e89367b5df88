"""Scales for groups of neighbouring elements: what the formats of 8 bits and fewer have in common."""

import numpy as np

from .codec import CHUNK

__all__ = ["Groups", "check_block", "scale_bytes"]


def check_block(block: int) -> int:
    """Refuse what is no number of elements.

    Raises
    ------
    ValueError
    """
    if not 1 <= block <= CHUNK:
        raise ValueError(f"codec: block is a number of elements, 1 .. {CHUNK}, got {block}")
    return block


def scale_bytes(count: int, block: int) -> int:
    """Bytes of the scales of ``count`` elements."""
    return 4 * -(-count // block)


class Groups:
    """Groups of ``block`` elements of a chunk, the last one of what is left, each with a float32 scale on the wire.

    Parameters
    ----------
    block : int
    top : float
        Where the largest magnitude of a group is taken to.
    """

    def __init__(self, block: int, top: float):
        self.block = block
        self._top = np.float32(top)
        self._scaled = np.empty(CHUNK, np.float32)
        self._factors = np.empty(-(-CHUNK // block), np.float32)

    def bytes(self, count: int) -> int:
        """Bytes of the scales of ``count`` elements, which come first on the wire."""
        return scale_bytes(count, self.block)

    def scale(self, values: np.ndarray, wire: np.ndarray, peak: float | None = None) -> np.ndarray:
        """Write the scales; the numbers divided by them, within -top .. top, in memory that may be written.

        Parameters
        ----------
        peak : float, optional
            Of all groups, instead of each one's own.

        Notes
        -----
        A group of zeros has scale 0 and stays zero; one that holds infinity or NaN has scale NaN, which makes all of it
        NaN when it is read.
        """
        count = values.size
        scaled = self._scaled[:count]
        scales = wire[: self.bytes(count)].view(np.float32)
        factors = self._factors[: scales.size]
        if peak is not None:
            factors[:] = peak
        else:
            np.abs(values, out=scaled)
            for part, groups in self._pieces(scaled):
                groups.max(axis=1, out=factors[part])
        np.divide(factors, self._top, out=scales)
        scales[~np.isfinite(factors)] = np.nan
        usable = (scales >= SMALLEST) & np.isfinite(scales)
        scales[scales < SMALLEST] = 0
        factors[:] = 0
        np.divide(np.float32(1), scales, out=factors, where=usable)
        for part, groups in self._pieces(scaled, values):
            np.multiply(groups[1], factors[part, None], out=groups[0])
        return scaled

    def unscale(self, out: np.ndarray, wire: np.ndarray) -> None:
        """Multiply by the scales, in place."""
        scales = wire[: self.bytes(out.size)].view(np.float32)
        for part, groups in self._pieces(out):
            np.multiply(groups, scales[part, None], out=groups)

    def _pieces(self, *arrays: np.ndarray):
        """The full groups as a matrix, then the rest as a row; with their numbers."""
        count = arrays[0].size
        full = count // self.block
        for part, start, stop, rows in (
            (slice(0, full), 0, full * self.block, full),
            (slice(full, full + 1), full * self.block, count, 1),
        ):
            if stop > start:
                shaped = [array[start:stop].reshape(rows, -1) for array in arrays]
                yield part, shaped[0] if len(shaped) == 1 else shaped


SMALLEST = np.float32(2.0**-126)  # reciprocals of smaller scales may be infinite: such groups become zero
