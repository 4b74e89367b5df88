"""Who should move messages while gradients are computed?  Tried out at start, on the ranks and library at hand."""

from dataclasses import dataclass
from time import perf_counter

import numpy as np
from mpi4py import MPI

from ..memory import SUM
from ..runtime import Plan, plan, progress_thread
from .computing import Compute, Pacer, adder

__all__ = ["STRATEGIES", "Capability", "probe_progress"]

STRATEGIES = ("test", "none", "thread")  # in doubt the first: it also serves where the host is idle meanwhile
PROBED_BYTES = 1 << 20
BUDGET_SECONDS = 2.0
MOST_TRIALS = 9
CALLS = 16  # what one trial of everything takes, in ring allreduces
PROBES = 16
CLOSE = 0.05  # fraction within which two strategies count as equal
_known: dict[tuple, "Capability"] = {}


@dataclass(frozen=True)
class Capability:
    """What was found; the same on all ranks, times being the slowest rank's, medians, in seconds.

    Attributes
    ----------
    message_alone, vendor_alone : float
        Of the time that a message, and MPI_Iallreduce, of a mebibyte takes: the fraction that passed while the rank
        slept and called nothing.  1: this MPI library moves data by itself; 0: it needs calls.
    communicating, computing : float
        A nonblocking ring allreduce of a mebibyte alone, and computation alone that takes about as long.
    together : dict of str to float
        Both at once, for each strategy that is possible.
    """

    message_alone: float
    vendor_alone: float
    communicating: float
    computing: float
    together: dict[str, float]

    @property
    def progress(self) -> str:
        """The strategy to be used: the fastest, or of those that are about as fast the first of ``STRATEGIES``."""
        fastest = min(self.together.values())
        return next(name for name in STRATEGIES if self.together.get(name, np.inf) <= fastest * (1 + CLOSE))

    def __str__(self) -> str:
        together = ", ".join(f"{name} {seconds * 1e3:.3g}" for name, seconds in self.together.items())
        return (
            f"Without calls, {self.message_alone:.0%} of a message's time passes, and {self.vendor_alone:.0%} of "
            f"MPI_Iallreduce's; ring of 1 MiB {self.communicating * 1e3:.3g} ms, computation {self.computing * 1e3:.3g}"
            f" ms, both at once by progress: {together} ms; progress={self.progress}"
        )


def probe_progress(comm: MPI.Intracomm) -> Capability:
    """Try out how communication moves on beside computation; collective.

    Takes up to about two seconds.  Communicators of the same ranks share the answer.

    Parameters
    ----------
    comm : Intracomm

    Returns
    -------
    Capability
    """
    key = tuple(MPI.Group.Translate_ranks(comm.Get_group(), range(comm.size), MPI.COMM_WORLD.Get_group()))
    if key not in _known:
        _known[key] = comm.bcast(_probe(comm))
    return _known[key]


def _probe(comm: MPI.Intracomm) -> Capability:
    if comm.size == 1:
        return Capability(1.0, 1.0, 0.0, 0.0, {"none": 0.0})
    buffer = np.zeros(PROBED_BYTES // 4, np.float32)
    clock = _Clock(comm)
    with plan(comm, MPI.IN_PLACE, buffer, op=SUM, algorithm="ring") as ring:
        clock.set_trials(clock.median(lambda: ring.start().wait()))
        communicating = clock.median(lambda: ring.start().wait())
        compute = adder({"": communicating})
        computing = clock.median(lambda: compute("", None, 1))
        together = {
            "none": clock.median(lambda: _both(ring, compute, 0)),
            "test": clock.median(lambda: _both(ring, compute, PROBES)),
        }
        if MPI.Query_thread() == MPI.THREAD_MULTIPLE:
            with progress_thread():
                together["thread"] = clock.median(lambda: _both(ring, compute, 0))
    with plan(comm, MPI.IN_PLACE, buffer, op=SUM, algorithm="vendor") as vendor:
        vendor_alone = _alone(clock, vendor.start, vendor.wait)
    return Capability(_message_alone(clock, buffer), vendor_alone, communicating, computing, together)


class _Clock:
    """Times calls on all ranks; collective."""

    def __init__(self, comm: MPI.Intracomm):
        self.comm = comm
        self.trials = 1

    def set_trials(self, seconds: float) -> None:
        """As many as fit the budget, if each call takes so long."""
        self.trials = round(min(max(BUDGET_SECONDS / (CALLS * seconds), 1), MOST_TRIALS))

    def median(self, call, *, own: bool = False) -> float:
        """Seconds of a call (``own``: those that it returns): the slowest rank's, the median of all trials."""
        times = []
        for _ in range(self.trials):
            self.comm.Barrier()
            started = perf_counter()
            found = call()
            times.append(found if own else perf_counter() - started)
        slowest = np.empty(self.trials)
        self.comm.Allreduce(np.array(times), slowest, MPI.MAX)
        return float(np.median(slowest))


def _both(started: Plan, compute: Compute, probes: int) -> None:
    started.start()
    compute("", started.test if probes else None, probes)
    started.wait()


def _message_alone(clock: _Clock, buffer: np.ndarray) -> float:
    """Every rank sends to the next, and receives from the one before."""
    private, received, requests = clock.comm.Dup(), np.empty_like(buffer), []
    after, before = (private.rank + 1) % private.size, (private.rank - 1) % private.size

    def start() -> None:
        requests[:] = private.Irecv(received, before), private.Isend(buffer, after)

    alone = _alone(clock, start, lambda: MPI.Request.Waitall(requests))
    private.Free()
    return alone


def _alone(clock: _Clock, start, wait) -> float:
    """The fraction of start + wait that need not be waited for after a sleep of twice as long."""

    def whole() -> None:
        start()
        wait()

    seconds = clock.median(whole)
    nap = Pacer({"": 2 * seconds})

    def rest() -> float:
        start()
        nap.begin()
        nap("", None, 1)
        started = perf_counter()
        wait()
        return perf_counter() - started

    return max(0.0, 1 - clock.median(rest, own=True) / seconds)
