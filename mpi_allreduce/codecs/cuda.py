"""The codecs of :mod:`.cuda_code` on CUDA devices, through CuPy."""

from functools import cache

import cupy
import numpy as np

from .codec import Codec
from .cuda_code import CODE, FORMATS, ON_DEVICE
from .device import DevicePacking, describe

__all__ = ["CudaPacking"]

THREADS = 256
MOST_BLOCKS = 4096
ELEMENTS, PACKET = 0, 1


@cache
def _module() -> cupy.RawModule:
    names = [f"{kind}_{name}" for kind in ("encode", "combine") for name in FORMATS]
    module = cupy.RawModule(code=ON_DEVICE + CODE, options=("--fmad=false",))
    for name in [*names, "write_header"]:
        module.get_function(name)  # compiled now, not in the middle of a run
    return module


class CudaPacking(DevicePacking):
    """See :class:`DevicePacking`; calls go to the current stream."""

    def __init__(self, device, codec: Codec):
        facts = describe(codec)
        module = _module()
        self._encode = module.get_function(f"encode_{facts.format}")
        self._combine = module.get_function(f"combine_{facts.format}")
        self._header = module.get_function("write_header")
        self._numbers = (np.float32(facts.predivide), np.int64(facts.block))
        self._largest = np.float32(facts.largest)
        self._device = device
        self._partial = None

    def encode(self, values, packet, flags, key):
        count = np.int64(values.size)
        self._encode(*_shape(values.size), (values, packet, flags, count, self._largest, *self._numbers))
        self._header((1,), (THREADS,), (packet, flags, np.uint32(key & 0xFFFFFFFF)))

    def combine(self, operands, out, flags):
        (first_is, first), *others = operands
        if len(others) <= 1:
            second_is, second = others[0] if others else (False, None)
            self._call(first, first_is, second, second_is, out, flags)
            return
        # A partial sum must not overwrite an operand that is still to come.
        total = self._room(out.size)
        self._call(first, first_is, others[0][1], others[0][0], total, flags)
        for i, (encoded, operand) in enumerate(others[1:], 2):
            self._call(total, False, operand, encoded, out if i == len(operands) - 1 else total, flags)

    def _call(self, left, left_is, right, right_is, out, flags) -> None:
        kinds = (np.int32(PACKET if left_is else ELEMENTS), np.int32(PACKET if right_is else ELEMENTS))
        second = np.uint64(0) if right is None else right
        arguments = (left, kinds[0], second, kinds[1], out, flags, np.int64(out.size), *self._numbers)
        self._combine(*_shape(out.size), arguments)

    def _room(self, count: int):
        if self._partial is None or self._partial.size < count:
            self._partial = self._device.empty(count, np.dtype(np.float32))
        return self._partial[:count]


def _shape(count: int) -> tuple[tuple[int], tuple[int]]:
    """Blocks and threads for so many elements."""
    return (max(min(-(-count // THREADS), MOST_BLOCKS), 1),), (THREADS,)
