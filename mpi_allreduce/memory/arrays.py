"""Whose memory an argument is: asked by protocol, so that no library is imported that the user did not."""

from collections.abc import Callable

import numpy as np

from .device import Device

__all__ = ["address", "cuda_device", "is_cuda", "local_device", "on_host"]

CUDA = 2  # kDLCUDA
CUDA_MANAGED = 13  # kDLCUDAManaged
_CPU = (1, 3)  # kDLCPU, kDLCUDAHost


def is_cuda(value: object) -> bool:
    """Whether it is an array on a CUDA device: CuPy's, PyTorch's, Numba's, ..."""
    return _dlpack_device(value) in (CUDA, CUDA_MANAGED) or hasattr(value, "__cuda_array_interface__")


def on_host(value: object) -> np.ndarray | None:
    """The NumPy array of a host array, without a copy; None if it is none.

    Raises
    ------
    TypeError
        If the library will not give its array away (a tensor that requires its gradient, a dtype that NumPy lacks).
    """
    if isinstance(value, np.ndarray):
        return value
    if _dlpack_device(value) not in _CPU:
        return None
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"{type(value).__name__} cannot be used as a NumPy array: {error}") from error


def address(array) -> int:
    """Where an array of the host or of a device begins."""
    interface = "__array_interface__" if isinstance(array, np.ndarray) else "__cuda_array_interface__"
    return getattr(array, interface)["data"][0]


def _dlpack_device(value: object) -> int | None:
    ask = getattr(value, "__dlpack_device__", None)
    if ask is None or isinstance(value, type):
        return None
    try:
        return int(ask()[0])
    except (BufferError, RuntimeError, TypeError, ValueError):  # a tensor on a device that DLPack does not know
        return None


def _cuda(value: object) -> Device:
    from .cuda import device_of  # imports cupy

    return device_of(value)


def _local(local_rank: int) -> Device:
    from .cuda import local_device as choose

    return choose(local_rank)


cuda_device: Callable[[object], Device] = _cuda
"""The device that holds an array for which :func:`is_cuda`; tests put a double here."""
local_device: Callable[[int], Device] = _local
"""Chooses, and makes current, the device of a rank by its number on its node; likewise."""
