"""Scratch memory on loan: what one plan gives back the next one takes, so that its pages need not be touched anew."""

import numpy as np

from .host import allocate

__all__ = ["KEPT_BYTES", "Scratch"]

KEPT_BYTES = 64 << 20  # not on loan, at most
_BYTE = np.dtype(np.uint8)
_kept: dict[int, list[np.ndarray]] = {}


class Scratch:
    """Uninitialised memory.

    Parameters
    ----------
    count : int
    dtype : dtype

    Attributes
    ----------
    array : ndarray, shape (count,)
        Aligned to a cache line; to be used until ``Free()``.
    """

    def __init__(self, count: int, dtype: np.dtype):
        nbytes = count * dtype.itemsize
        size = 1 << max(nbytes - 1, 4095).bit_length()  # of few sizes, so that they fit again
        kept = _kept.get(size)
        self._memory = kept.pop() if kept else allocate(size, _BYTE)
        self.array = self._memory[:nbytes].view(dtype)

    def Free(self) -> None:  # noqa: N802 - plans free it in one list with MPI's handles, whose method has this name
        """Give it back."""
        memory, self._memory, self.array = self._memory, None, None
        held = sum(size * len(arrays) for size, arrays in _kept.items())
        if memory is not None and held + memory.nbytes <= KEPT_BYTES:
            _kept.setdefault(memory.nbytes, []).append(memory)
