"""CUDA devices through CuPy; the only file that imports it."""

from collections.abc import Callable
from functools import cache

import numpy as np

try:
    import cupy
    from cupy.cuda import Device as _CupyDevice
    from cupy.cuda import Event, Stream, alloc_pinned_memory, get_current_stream, runtime
except ImportError as error:
    raise ModuleNotFoundError(
        'arrays on a CUDA device need CuPy: pip install "mpi_allreduce[cuda12x]" (or [cuda13x]), as nvidia-smi says; '
        f"importing it failed: {error}"
    ) from error

from .cuda_code import BFLOAT16_CODE, BFLOAT16_OPERATIONS
from .device import Device, Queue
from .dtypes import BFLOAT16
from .operators import OPERATORS, Operator

__all__ = ["CudaDevice", "device_of", "local_device", "number_of_devices"]

_UFUNCS = {
    "SUM": "add", "AVG": "add", "PROD": "multiply", "MIN": "minimum", "MAX": "maximum", "LAND": "logical_and",
    "LOR": "logical_or", "LXOR": "logical_xor", "BAND": "bitwise_and", "BOR": "bitwise_or", "BXOR": "bitwise_xor",
}  # fmt: skip


_PROOF = """
import cupy
from mpi4py import MPI
with cupy.cuda.Device({number}):
    sent = cupy.arange(1 << 16, dtype=cupy.float32)
    received = cupy.zeros_like(sent)
    cupy.cuda.Device().synchronize()
    MPI.COMM_SELF.Sendrecv([sent, MPI.FLOAT], 0, 0, [received, MPI.FLOAT], 0, 0)
    print("right" if bool((received == sent).all()) else "wrong")
"""


def number_of_devices() -> int:
    """0 where there is no device, or no driver."""
    try:
        return runtime.getDeviceCount()
    except runtime.CUDARuntimeError:
        return 0


def local_device(local_rank: int) -> "CudaDevice":
    """Make the device of a rank the current one: they are dealt out in turn, where there are more ranks than devices.

    What CUDA_VISIBLE_DEVICES or SLURM hides is not counted.

    Raises
    ------
    RuntimeError
        If there is no usable device.
    """
    number = local_rank % _some_devices()
    _CupyDevice(number).use()
    return _device(number)


def _some_devices() -> int:
    number = number_of_devices()
    if number == 0:
        raise RuntimeError("this process sees no CUDA device: no driver, or CUDA_VISIBLE_DEVICES is empty")
    return number


def device_of(given: object) -> "CudaDevice":
    """The device that holds an array.

    Raises
    ------
    RuntimeError
        If there is no usable device.
    """
    _some_devices()
    pointer = _as_cupy(given).data.ptr
    if pointer == 0:  # no elements
        return _device(_CupyDevice().id)
    return _device(runtime.pointerGetAttributes(pointer).device)


@cache
def _device(number: int) -> "CudaDevice":
    return CudaDevice(number)


def _as_cupy(given: object) -> "cupy.ndarray":
    if isinstance(given, cupy.ndarray):
        return given
    try:
        _ = given.__cuda_array_interface__
    except (AttributeError, TypeError):  # PyTorch's bfloat16 has none
        return cupy.from_dlpack(given)
    return cupy.asarray(given)


class CudaDevice(Device):
    """One GPU."""

    def __init__(self, number: int):
        self.number = number
        self.name = f"cuda:{number}"
        facts = runtime.getDeviceProperties(number)
        self.description = f"{facts['name'].decode()}, {facts['totalGlobalMem'] / 2**30:.0f} GiB"
        self.identity = facts["uuid"].hex() if isinstance(facts["uuid"], bytes) else str(facts["uuid"])
        self.proof = _PROOF.format(number=number)

    def array(self, given):
        return _as_cupy(given)

    def empty(self, count, dtype):
        with _CupyDevice(self.number):
            return cupy.empty(count, dtype)

    def pinned(self, nbytes):
        return np.frombuffer(alloc_pinned_memory(max(nbytes, 1)), np.uint8, nbytes)

    def borrowed(self, array):
        memory = cupy.cuda.UnownedMemory(array.data.ptr, max(array.nbytes, 1), None, self.number)
        return cupy.ndarray(array.size, array.dtype, cupy.cuda.MemoryPointer(memory, 0))

    def kernel(self, op: Operator, dtype):
        known = OPERATORS.get(op.name) is op
        if not known:
            return _of_user(op)
        if op.name not in _UFUNCS:
            raise TypeError(f"op: {op.name} is not made for arrays on a device")
        if dtype == BFLOAT16:
            return _bfloat16_kernel(_UFUNCS[op.name])
        return getattr(cupy, _UFUNCS[op.name])

    def divide(self, array, size):
        if array.dtype == BFLOAT16:
            _bfloat16_elementwise("float divisor", "bfloat16_value(left) / divisor")(
                array.view(np.uint16), np.float32(size), array.view(np.uint16)
            )
            return
        divisor = np.float32(size) if array.dtype == np.float16 else array.dtype.type(size)
        cupy.true_divide(array, divisor, out=array, casting="unsafe")

    def queue(self):
        return _Stream(self.number)

    def put(self, array, values):
        array.set(np.ascontiguousarray(values))

    def get(self, array):
        return cupy.asnumpy(array)

    def wait(self):
        get_current_stream().synchronize()


@cache
def _bfloat16_kernel(name: str):
    """CuPy's own functions do not take bfloat16."""
    if name not in BFLOAT16_OPERATIONS:
        raise TypeError(f"op: {name} is not made for bfloat16 on a device")
    made = _bfloat16_elementwise("uint16 right", BFLOAT16_OPERATIONS[name])

    def kernel(left, right, out):
        made(left.view(np.uint16), right.view(np.uint16), out.view(np.uint16))

    return kernel


@cache
def _bfloat16_elementwise(second: str, expression: str):
    return cupy.ElementwiseKernel(
        f"uint16 left, {second}", "uint16 out", f"out = bfloat16_bits({expression})", preamble=BFLOAT16_CODE
    )


def _of_user(op: Operator):
    """The user's function gets CuPy arrays."""
    function = op.make_kernel(np.dtype(np.float32), 1)

    def kernel(left, right, out):
        result = function(left, right, out=out)
        if result is not None and result is not out:
            out[...] = result

    return kernel


class _Stream(Queue):
    def __init__(self, number: int):
        self._device = _CupyDevice(number)
        with self._device:
            self._stream = Stream(non_blocking=True)
            self._event = Event(disable_timing=True)

    def run(self, function, *arguments, **keywords):
        with self._device, self._stream:
            function(*arguments, **keywords)

    def copy(self, target, source):
        target.data.copy_from_device_async(source.data, source.nbytes, self._stream)

    def download(self, target, source):
        source.data.copy_to_host_async(target.ctypes.data, source.nbytes, self._stream)

    def upload(self, target, source):
        target.data.copy_from_host_async(source.ctypes.data, target.nbytes, self._stream)

    def follow_user(self):
        with self._device:
            self._event.record(get_current_stream())
            self._stream.wait_event(self._event)

    def lead_user(self):
        with self._device:
            self._event.record(self._stream)
            get_current_stream().wait_event(self._event)

    def mark(self) -> Callable[[], bool]:
        with self._device:
            event = Event(disable_timing=True)
            event.record(self._stream)
        return lambda: event.done

    def synchronise(self):
        self._stream.synchronize()
