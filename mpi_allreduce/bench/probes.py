"""Round trips, exchanges and additions: what the cost model's numbers are read from, beside the sweep itself."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from mpi4py import MPI

from ..memory import SUM

__all__ = ["Probe", "measure_probes"]

MESSAGE_BYTES = (8, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20)
TRAIN_BYTES = (8, 1 << 10, 8 << 10, 64 << 10)
TRAIN = 8  # messages
ADDED_BYTES = (4 << 10, 64 << 10, 1 << 20, 4 << 20)
FEWEST, MOST = 4, 100  # repetitions, after one that is not counted
NAP = 0.001  # of the ranks that have no part


@dataclass(frozen=True)
class Probe:
    """Times of one elementary operation.

    Attributes
    ----------
    kind : str
        ``train``: ``messages`` of ``bytes`` go one after the other, ``delay`` seconds apart, and the last is answered
        by one as large; a single message is a ping-pong.  ``exchange``: two ranks send to each other at once.
        ``add``: two arrays of float32 into a third, on all ranks at once.
    place : str
        ``node`` or ``network``: where the two ranks are, rank 0 being one; ``cores`` for additions.
    bytes, messages : int
    delay : float
        Seconds between messages of a train.
    seconds : ndarray, shape (repetitions,)
        Of the whole round trip, the exchange on rank 0, or the slowest rank's addition.
    """

    kind: str
    place: str
    bytes: int
    messages: int
    delay: float
    seconds: np.ndarray


def measure_probes(comm: MPI.Intracomm, max_seconds: float) -> list[Probe]:
    """Measure what this launch can: between nodes, inside a node, on the cores; collective.

    Parameters
    ----------
    comm : Intracomm
    max_seconds : float
        About what all of it may take.  Sizes that do not fit are left out.

    Returns
    -------
    list of Probe
        On rank 0; empty elsewhere.

    Notes
    -----
    Trains with and without delays tell the overhead, the gap and the latency of LogGP apart.  Source: T. Hoefler,
    A. Lichei, W. Rehm: Low-overhead LogGP parameter assessment for modern interconnection networks, IPDPS 2007.
    """
    partners = _partners(comm)
    share = max_seconds / (2 * len(partners) + 1)
    probes = []
    for place, partner in partners.items():
        pair = comm.Split(0 if comm.rank in (0, partner) else MPI.UNDEFINED)
        if pair != MPI.COMM_NULL:
            probes += _messages(pair, place, share) + _trains(pair, place, share)
            pair.Free()
        _wait_quietly(comm)
    probes += _additions(comm, share)
    return probes if comm.rank == 0 else []


def _partners(comm: MPI.Intracomm) -> dict[str, int]:
    """Rank 0's nearest rank on another node, and on its own."""
    hosts = comm.allgather(MPI.Get_processor_name())
    apart = {"network": [r for r, host in enumerate(hosts) if host != hosts[0]],
             "node": [r for r, host in enumerate(hosts) if r and host == hosts[0]]}  # fmt: skip
    return {place: ranks[0] for place, ranks in apart.items() if ranks}


def _messages(pair: MPI.Intracomm, place: str, max_seconds: float) -> list[Probe]:
    """Ping-pongs and exchanges, from small to large while they fit."""
    probes = []
    share = max_seconds / (2 * len(MESSAGE_BYTES))
    for size in MESSAGE_BYTES:
        mine, others = np.ones((2, size), np.uint8)
        first = _timed(pair, lambda: _train(pair, mine, others, 1, 0.0), share)  # noqa: B023 - called at once
        if not len(first):
            break
        second = _timed(pair, lambda: pair.Sendrecv(mine, 1 - pair.rank, 0, others, 1 - pair.rank, 0), share)  # noqa: B023
        probes += [Probe("train", place, size, 1, 0.0, first), Probe("exchange", place, size, 1, 0.0, second)]
    return [probe for probe in probes if len(probe.seconds)]


def _trains(pair: MPI.Intracomm, place: str, max_seconds: float) -> list[Probe]:
    """Messages in a row, as fast as they go, and so far apart that none waits for the one before."""
    probes = []
    share = max_seconds / (2 * len(TRAIN_BYTES))
    for size in TRAIN_BYTES:
        mine, others = np.ones((2, size), np.uint8)
        alone = _timed(pair, lambda: _train(pair, mine, others, 1, 0.0), share / 4)  # noqa: B023
        if not len(alone):
            break
        pause = pair.bcast(float(np.median(alone)))
        for delay in (0.0, pause):
            seconds = _timed(pair, lambda: _train(pair, mine, others, TRAIN, delay), share)  # noqa: B023
            if len(seconds):
                probes.append(Probe("train", place, size, TRAIN, delay, seconds))
    return probes


def _train(pair: MPI.Intracomm, mine: np.ndarray, others: np.ndarray, messages: int, delay: float) -> None:
    if pair.rank:
        for _ in range(messages):
            pair.Recv(others, 0)
        pair.Send(mine, 0)
        return
    pair.Send(mine, 1)
    for _ in range(messages - 1):
        _spin(delay)
        pair.Send(mine, 1)
    pair.Recv(others, 1)


def _spin(seconds: float) -> None:
    end = perf_counter() + seconds
    while perf_counter() < end:
        pass


def _timed(comm: MPI.Intracomm, once: Callable[[], object], max_seconds: float) -> np.ndarray:
    """Seconds of each repetition on this rank, the first not counted; none if too few fit; collective."""

    def clocked() -> float:
        started = perf_counter()
        once()
        return perf_counter() - started

    fitting = int(max_seconds / max(clocked(), 1e-7))
    number = comm.bcast(min(fitting, MOST) if fitting >= FEWEST else 0)
    return np.array([clocked() for _ in range(number)])


def _additions(comm: MPI.Intracomm, max_seconds: float) -> list[Probe]:
    probes = []
    for size in ADDED_BYTES:
        left, right, out = np.ones((3, size // 4), np.float32)
        kernel = SUM.kernel(out.dtype, out.size)
        comm.Barrier()
        mine = _timed(comm, lambda: kernel(left, right, out=out), max_seconds / len(ADDED_BYTES))  # noqa: B023
        slowest = np.empty_like(mine)
        comm.Allreduce(mine, slowest, MPI.MAX)
        if len(slowest):
            probes.append(Probe("add", "cores", size, 1, 0.0, slowest))
    return probes


def _wait_quietly(comm: MPI.Intracomm) -> None:
    """A barrier that takes no core from those who are still measuring."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(NAP)
