"""Timing one case: warm up, repeat until the median is known well enough, keep every time of every rank."""

import gc
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from time import perf_counter

import numpy as np
from mpi4py import MPI

from .barrier import Barrier
from .skew import Skew
from .statistics import Summary, completion, summarise

__all__ = ["Measurement", "Run", "Timer", "clock_floor"]

FEWEST = 6  # of fewer repetitions no interval of the median has 95 %
PATIENCE = 3  # times a visit's time, after which even the least repetitions are given up
WARM_SHARE = 0.25  # of a case's time, at most
SETTLED = 0.05  # the running median moves by less
LONGEST_STREAM = 16  # in place, values grow with each repetition of a stream


@dataclass(frozen=True)
class Run:
    """One way of running a case: a plan on one of the rotating pairs of buffers.

    Attributes
    ----------
    call : callable
        What is timed.
    restore : callable
        Puts the contribution back into an in-place buffer; not timed.
    """

    call: Callable[[], object]
    restore: Callable[[], object]


@dataclass(frozen=True)
class Measurement:
    """All that was timed in one visit of a case; on rank 0 only.

    Attributes
    ----------
    seconds : ndarray, shape (repetitions, ranks)
        From each rank's own arrival to its end.
    delays : ndarray, shape (repetitions, ranks), or None
        How late each rank arrived on purpose.
    warmups : int
        Repetitions that were not kept.
    ended_by : str
        ``interval``, ``time``, ``repetitions``, or ``signal`` if it was cut short.
    """

    seconds: np.ndarray
    delays: np.ndarray | None
    warmups: int
    ended_by: str

    @property
    def summary(self) -> Summary:
        """Median, interval and percentiles."""
        return summarise([self.completion])

    @property
    def completion(self) -> np.ndarray:
        """Time of each repetition, shape (repetitions,)."""
        return completion(self.seconds, self.delays)


class Timer:
    """Times cases on one communicator; rank 0 decides how often, and tells the others between batches.

    Parameters
    ----------
    comm : Intracomm
    mode : str
        ``isolated`` or ``streaming``.
    skew : Skew
    in_place : bool
    ci : float
        Wanted half-width of the median's confidence interval, relative to the median.
    repetitions : tuple of int
        At least (unless the time was used up several times over), at most.
    stop : callable
        Whether this rank was asked to end; one is enough.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        mode: str,
        skew: Skew,
        in_place: bool,
        ci: float,
        repetitions: tuple[int, int],
        stop: Callable[[], bool] = lambda: False,
    ):
        self.comm = comm
        self.barrier = Barrier(comm)
        self.skew = skew
        self.in_place = in_place
        self.ci = ci
        self.stop = stop
        self.at_least, self.at_most = repetitions
        self._batch = {"isolated": self._isolated, "streaming": self._streaming}[mode]

    def measure(self, runs: Sequence[Run], max_seconds: float, baseline: float = 0.0) -> Measurement | None:
        """Time ``runs`` in rotation: one visit; collective.

        Parameters
        ----------
        runs : sequence of Run
        max_seconds : float
            Where the interval does not get narrow enough, stop after so long (rank 0's value counts).
        baseline : float
            Seconds to which skew is scaled.

        Returns
        -------
        Measurement
            On rank 0; None elsewhere.
        """
        rotation = cycle(runs)
        with _no_garbage_collection():
            controller = _Controller(self, max_seconds) if self.comm.rank == 0 else None
            while True:
                number = self.comm.bcast(controller.next_batch() if controller else None)
                if not number:
                    break
                delays = self.skew.delays(number, baseline) if self.skew.active else None
                seconds = self._batch(rotation, number, delays, runs)
                gathered = self.comm.gather((seconds, self.stop()))
                if controller:
                    controller.add(np.array([times for times, _ in gathered]).T, delays)
                    controller.stopped |= any(stop for _, stop in gathered)
        return controller.result() if controller else None

    def _isolated(self, rotation, number: int, delays, runs) -> np.ndarray:
        seconds = np.empty(number)
        barrier, now = self.barrier, perf_counter
        for i in range(number):
            run = next(rotation)
            if self.in_place:
                run.restore()
            call = run.call
            barrier()
            if delays is not None:
                _spin(delays[i, self.comm.rank])
            start = now()
            call()
            seconds[i] = now() - start
        return seconds

    def _streaming(self, rotation, number: int, delays, runs) -> np.ndarray:
        clock = np.empty(number + 1)
        now = perf_counter
        if self.in_place:
            for run in runs:
                run.restore()
        self.barrier()
        clock[0] = now()
        for i in range(number):
            next(rotation).call()
            clock[i + 1] = now()
        return np.diff(clock)

    def largest_batch(self) -> int:
        """How many repetitions may follow each other without a word from rank 0."""
        return LONGEST_STREAM if self.in_place and self._batch == self._streaming else 1000


class _Controller:
    """Rank 0's decisions."""

    def __init__(self, timer: Timer, max_seconds: float):
        self.timer = timer
        self.max_seconds = max_seconds
        self.started = perf_counter()
        self.warm: list[np.ndarray] = []
        self.warming = True
        self.kept: list[np.ndarray] = []
        self.delays: list[np.ndarray] = []
        self.ended_by = ""
        self.stopped = False

    def add(self, seconds: np.ndarray, delays: np.ndarray | None) -> None:
        if self.warming:
            self.warm.append(completion(seconds, delays))
            self.warming = not self._is_warm()
            return
        self.kept.append(seconds)
        if delays is not None:
            self.delays.append(delays)

    def next_batch(self) -> int:
        """How many repetitions come next; 0 ends the case."""
        if self.stopped:
            self.ended_by = "signal"
            return 0
        if self.warming:
            return min(1 << len(self.warm), self.timer.largest_batch())
        done = sum(map(len, self.kept))
        self.ended_by = self._reason_to_stop(done)
        if self.ended_by:
            return 0
        latest = self.kept[-1].max(axis=1) if self.kept else self.warm[-1]
        typical = max(float(latest.min()), 1e-7)  # the least, as a scheduler's tick may hide all others
        fitting = int(self.max_seconds / 10 / typical)
        batch = max(min(fitting, self.timer.largest_batch()), 1)
        return min(batch, self.timer.at_most - done)

    def _is_warm(self) -> bool:
        if perf_counter() - self.started > WARM_SHARE * self.max_seconds:
            return True
        if len(self.warm) < 3:
            return False
        before, after = (float(np.median(times)) for times in self.warm[-2:])
        return abs(after - before) <= SETTLED * before

    def _reason_to_stop(self, done: int) -> str:
        used = perf_counter() - self.started
        if used > self.max_seconds and (done >= self.timer.at_least or (done and used > PATIENCE * self.max_seconds)):
            return "time"
        if done < self.timer.at_least:
            return ""
        if done >= FEWEST and self._summary().half_width <= self.timer.ci:
            return "interval"
        return "repetitions" if done >= self.timer.at_most else ""

    def _summary(self) -> Summary:
        return self.result().summary

    def result(self) -> Measurement:
        return Measurement(
            np.concatenate(self.kept) if self.kept else np.empty((0, self.timer.comm.size)),
            np.concatenate(self.delays) if self.delays else None,
            sum(map(len, self.warm)),
            self.ended_by,
        )


def clock_floor(samples: int = 1000) -> float:
    """Seconds between two readings of the clock that follow each other: what the timer itself adds."""
    readings = np.array([perf_counter() for _ in range(samples)])
    return float(np.median(np.diff(readings)))


def _spin(seconds: float) -> None:
    end = perf_counter() + seconds
    while perf_counter() < end:
        pass


@contextmanager
def _no_garbage_collection():
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
