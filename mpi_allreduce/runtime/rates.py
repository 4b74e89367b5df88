"""How fast a device's bus is, and the host's additions: where should staged buffers be reduced?"""

from dataclasses import dataclass
from time import perf_counter

import numpy as np
from mpi4py import MPI

from ..algorithms import fitted
from ..memory import Device
from .execution import Task

__all__ = ["Rates", "device_limits", "measure_rates"]

SAMPLE_BYTES = 4 << 20
LIMIT_BYTES = 64 << 20
TRIALS = 5


@dataclass(frozen=True)
class Rates:
    """The slowest rank's.

    Attributes
    ----------
    bus : float
        Seconds for each byte from the device to pinned memory, or back.
    add : float
        Seconds for each byte of the result of an addition of float32 on the host.
    """

    bus: float
    add: float

    def reduce_on(self, task: Task) -> str:
        """``host`` or ``device``, by what crosses the bus and what the host adds for each byte of the buffer.

        On the host the buffer crosses the bus twice, and the host adds; on the device each message does, one way when
        it is sent and one way when it arrives, and additions cost next to nothing.
        """
        size = task.comm.size
        algorithm = fitted(task.name, size, task.receive.nbytes)
        sent, reduced = (float(f(size, **algorithm.symbols)) for f in (algorithm.cost.sent, algorithm.cost.reduced))
        return "host" if 2 * self.bus + reduced * self.add <= 2 * sent * self.bus else "device"


def measure_rates(comm: MPI.Intracomm, device: Device) -> Rates:
    """Time both; collective, a few milliseconds."""
    memory, pinned = device.empty(SAMPLE_BYTES, np.dtype(np.uint8)), device.pinned(SAMPLE_BYTES)
    values = np.ones(SAMPLE_BYTES // 4, np.float32)
    queue = device.queue()

    def cross() -> None:
        queue.download(pinned, memory)
        queue.synchronise()

    mine = np.array([_best(cross), _best(lambda: np.add(values, values, out=values))]) / SAMPLE_BYTES
    slowest = np.empty(2)
    comm.Allreduce(mine, slowest, MPI.MAX)
    return Rates(*map(float, slowest))


def device_limits(comm: MPI.Intracomm, device: Device) -> dict[str, float]:
    """What nothing on the device can be faster than, all ranks at once; collective.

    Returns
    -------
    dict
        Bytes per second, the slowest rank's: ``down``, ``up`` (pinned memory), ``copy`` (within the device; what is
        read and written counts once).
    """
    memory, other = (device.empty(LIMIT_BYTES, np.dtype(np.uint8)) for _ in range(2))
    pinned, queue = device.pinned(LIMIT_BYTES), device.queue()
    works = {
        "down": lambda: queue.download(pinned, memory),
        "up": lambda: queue.upload(memory, pinned),
        "copy": lambda: queue.copy(other, memory),
    }
    limits = {}
    for name, work in works.items():

        def once(work=work) -> None:
            work()
            queue.synchronise()

        comm.Barrier()
        limits[name] = LIMIT_BYTES / comm.allreduce(_best(once), MPI.MAX)
    return limits


def _best(call) -> float:
    times = []
    for _ in range(TRIALS):
        started = perf_counter()
        call()
        times.append(perf_counter() - started)
    return min(times)
