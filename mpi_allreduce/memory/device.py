"""Device memory: what CuPy, or a test double in its place, must offer, and the spaces made of it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import numpy as np

from .operators import Kernel, Operator
from .space import Direct, Port, Ports, Space

__all__ = ["ALIGNMENT", "AwareSpace", "Device", "DeviceScratch", "DeviceSpace", "Queue", "StagedSpace"]

ALIGNMENT = 256  # bytes, in pinned memory


class Queue(ABC):
    """Work that a device does in order, some time later: a CUDA stream."""

    @abstractmethod
    def run(self, function: Callable[..., object], *arguments, **keywords) -> None:
        """Queue a call that works on the device's arrays."""

    @abstractmethod
    def copy(self, target, source) -> None:
        """Queue a copy between two arrays on the device."""

    @abstractmethod
    def download(self, target: np.ndarray, source) -> None:
        """Queue a copy to pinned memory."""

    @abstractmethod
    def upload(self, target, source: np.ndarray) -> None:
        """Queue a copy from pinned memory."""

    @abstractmethod
    def follow_user(self) -> None:
        """What is queued from now on waits for what is in the user's current queue now."""

    @abstractmethod
    def lead_user(self) -> None:
        """What the user queues from now on, in the current queue, waits for what is in this one now."""

    @abstractmethod
    def mark(self) -> Callable[[], bool]:
        """Whether all that is queued now is done: to be asked later."""

    @abstractmethod
    def synchronise(self) -> None:
        """Wait until all that is queued is done."""


class Device(ABC):
    """One accelerator.

    Attributes
    ----------
    name : str
    description : str
        For people.
    identity : str
        The same in all processes that use this device.
    proof : str
        A Python program that sends a message from this device's memory to itself by MPI, and prints ``right``.
    """

    name: str
    description: str
    identity: str
    proof: str

    @abstractmethod
    def array(self, given: object):
        """The device array of an object that has one, without a copy.

        It must have ``shape``, ``size``, ``dtype``, ``itemsize``, ``nbytes``, slices, ``reshape``, ``view``, and
        ``__cuda_array_interface__``.
        """

    @abstractmethod
    def empty(self, count: int, dtype: np.dtype):
        """An uninitialised array of one dimension."""

    @abstractmethod
    def pinned(self, nbytes: int) -> np.ndarray:
        """Page-locked host memory, of uint8."""

    @abstractmethod
    def borrowed(self, array):
        """A one-dimensional view that does not keep the memory alive."""

    @abstractmethod
    def kernel(self, op: Operator, dtype: np.dtype) -> Kernel:
        """The operator for arrays of this device.

        Raises
        ------
        TypeError
        """

    @abstractmethod
    def divide(self, array, size: int) -> None:
        """Divide in place, in the user's current queue."""

    @abstractmethod
    def queue(self) -> Queue:
        """A new queue."""

    @abstractmethod
    def put(self, array, values: np.ndarray) -> None:
        """Copy from the host, in the user's current queue."""

    @abstractmethod
    def get(self, array) -> np.ndarray:
        """Copy to the host, in the user's current queue, and wait for it."""

    @abstractmethod
    def wait(self) -> None:
        """Wait for the user's current queue."""


class DeviceScratch:
    """Device memory; the library has a pool of its own."""

    def __init__(self, device: Device, count: int, dtype: np.dtype):
        self.array = device.empty(count, dtype)

    def Free(self) -> None:  # noqa: N802 - as Scratch's
        """Give it back."""
        self.array = None


class DeviceSpace(Space):
    """Memory of a device, with a queue of its own.

    Parameters
    ----------
    device : Device
    """

    def __init__(self, device: Device):
        self.device = device
        self.name = device.name
        self.queue = device.queue()

    def scratch(self, count, dtype):
        return DeviceScratch(self.device, count, dtype)

    def kernel(self, op, dtype, longest):
        return self.device.kernel(op, dtype)

    def call(self, kernel, left, right, out):
        return partial(self.queue.run, kernel, left, right, out=out)

    def copy(self, target, source):
        return partial(self.queue.copy, target, source)

    def enter(self):
        self.queue.follow_user()

    def settled(self):
        return self.queue.mark()

    def settle(self):
        self.queue.synchronise()

    def leave(self):
        self.queue.lead_user()


class AwareSpace(DeviceSpace):
    """MPI takes device pointers."""

    def ports(self, rounds):
        ports = Direct(lambda view: view.view(np.uint8))
        return lambda: ports


class StagedSpace(DeviceSpace):
    """MPI knows host memory only: messages pass through pinned memory, reductions are made on the device.

    Pinned memory is as large as the messages of one round, as each round is settled before the next one.
    """

    def ports(self, rounds):
        memory = self.device.pinned(max((sum(map(_aligned, sizes)) for sizes in rounds), default=0))
        return lambda: _Staging(self.queue, memory)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class _Staging(Ports):
    """One round's messages, one behind the other in pinned memory."""

    def __init__(self, queue: Queue, memory: np.ndarray):
        self._queue = queue
        self._memory = memory
        self._used = 0

    def outgoing(self, view) -> Port:
        """Copied down before it is sent."""
        staged = self._take(view)
        return Port(staged, (partial(self._queue.download, staged, view.view(np.uint8)),))

    def incoming(self, view) -> Port:
        """Copied up behind its arrival."""
        staged = self._take(view)
        return Port(staged, (partial(self._queue.upload, view.view(np.uint8), staged),))

    def _take(self, view) -> np.ndarray:
        start = self._used
        self._used += _aligned(view.nbytes)
        return self._memory[start : start + view.nbytes]
