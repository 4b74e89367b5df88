"""Codecs that work on a device: what they must do, and which can."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..memory import Device
from .codec import Codec
from .floats import Bf16, Fp16
from .integers import Integers

__all__ = ["DevicePacking", "Facts", "describe", "device_packing"]


@dataclass(frozen=True)
class Facts:
    """A codec for the functions of :mod:`.cuda_code`.

    Attributes
    ----------
    format : str
        One of their names.
    largest : float
        A float32: larger magnitudes overflow.
    predivide : float
    block : int
    """

    format: str
    largest: float
    predivide: float = 1.0
    block: int = 1


def describe(codec: Codec) -> Facts | None:
    """None if the codec works on the host only."""
    match codec:
        case Fp16(predivide=predivide):
            return Facts("fp16", _float32(codec.largest), predivide)
        case Bf16():
            return Facts("bf16", _float32(codec.largest))
        case Integers(bits=8, stochastic=False, whole=False):
            return Facts("int8", _float32(codec.largest), block=codec.block)
    return None


def _float32(largest: float) -> float:
    """The largest float32 that is no larger."""
    near = np.float32(largest)
    return float(near if near <= largest else np.nextafter(near, np.float32(0)))


class DevicePacking(ABC):
    """What :class:`.Packer` does, on arrays of a device; calls are put into a queue.

    ``flags`` is an array of one uint32 on the device: what is known of a block.
    """

    @abstractmethod
    def encode(self, values, packet, flags, key: int) -> None:
        """Write a block; what is found in it is added to its flags."""

    @abstractmethod
    def combine(self, operands: Sequence[tuple[bool, object]], out, flags) -> None:
        """``out = operands[0] + operands[1] + ...`` from left to right, those with True being packets.

        One operand: it is decoded.  The flags of packets are added.
        """


def _packing(device: Device, codec: Codec) -> DevicePacking:
    from .cuda import CudaPacking  # imports cupy

    return CudaPacking(device, codec)


make_packing: Callable[[Device, Codec], DevicePacking] = _packing
"""Makes it; tests put a double here."""


def device_packing(device: Device, codec: Codec, dtype: np.dtype) -> Callable[[], DevicePacking] | None:
    """What makes the packing of a codec; None if the device has none for it, or for this dtype."""
    if describe(codec) is None or dtype != np.dtype(np.float32):
        return None
    return lambda: make_packing(device, codec)
