"""NumPy buffers in host memory."""

import numpy as np

__all__ = ["allocate", "borrowed", "elements", "wire"]

ALIGNMENT = 64  # a cache line, and the widest vector register


def allocate(count: int, dtype: np.dtype) -> np.ndarray:
    """``count`` uninitialised elements, aligned to a cache line.

    Returns
    -------
    ndarray, shape (count,)
    """
    raw = np.empty(count * dtype.itemsize + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + count * dtype.itemsize].view(dtype)


def elements(array: np.ndarray) -> np.ndarray:
    """A C-contiguous array of any shape as a one-dimensional view."""
    return array.reshape(-1)


def wire(array: np.ndarray) -> np.ndarray:
    """The bytes of a one-dimensional contiguous array, as a view: what travels, whatever the dtype."""
    return array.view(np.uint8)


class _Address:
    def __init__(self, interface: dict):
        self.__array_interface__ = interface


def borrowed(array: np.ndarray) -> np.ndarray:
    """A one-dimensional view that does not keep ``array``'s memory alive.

    It may be used only while someone else holds the memory: the cache of plans uses it, after it has made sure that
    the caller passes a live array at the very same address.
    """
    nbytes = array.size * array.dtype.itemsize
    address, readonly = array.__array_interface__["data"]
    interface = {"version": 3, "typestr": "|u1", "shape": (nbytes,), "data": (address, readonly)}
    return np.asarray(_Address(interface)).view(array.dtype)
