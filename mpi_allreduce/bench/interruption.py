"""Ending a run early and well: on a signal between two repetitions, on a hang after a while."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from mpi4py import MPI

__all__ = ["HUNG", "StopRequest", "Watchdog"]

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""SLURM sends SIGTERM before it kills (time limit, preemption, scancel); SIGUSR1 is what mpirun passes on to ranks."""
HUNG = 124  # exit status, as of timeout(1)


class StopRequest:
    """Remembers a signal instead of dying of it; a context manager.

    Attributes
    ----------
    name : str
        Of the first signal that came; empty while none has.
    """

    def __init__(self):
        self.name = ""

    def __bool__(self) -> bool:
        return bool(self.name)

    def __enter__(self) -> "StopRequest":
        self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame) -> None:
        self.name = self.name or signal.Signals(number).name


class Watchdog:
    """Aborts the job, and says what it was at, if nothing was finished for a while; a context manager.

    A rank or a node that dies may leave the others waiting in MPI forever, which no timeout of a batch system explains.

    Parameters
    ----------
    seconds : float
        How long nothing may be finished.
    advice : str
        Said at the end of the message.

    Attributes
    ----------
    rescue : callable or None
        Called before the job is aborted.
    """

    def __init__(self, seconds: float, advice: str = ""):
        self.seconds = seconds
        self.advice = advice
        self.rescue: Callable[[], None] | None = None
        self._what = "starting"
        self._last = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def finished(self, next_: str) -> None:
        """Something was finished, and ``next_`` is what comes."""
        self._what, self._last = next_, time.monotonic()

    def __enter__(self) -> "Watchdog":
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        # Seldom, as each look takes the interpreter away from the main thread for a moment.
        while not self._over.wait(min(self.seconds / 5, 10)):
            if time.monotonic() - self._last > self.seconds:
                self._abort()

    def _abort(self) -> None:
        rank, host = MPI.COMM_WORLD.rank, MPI.Get_processor_name()
        print(
            f"rank {rank} on {host}: nothing was finished for {self.seconds:g} s while at {self._what}; "
            f"some rank or node is dead or stuck. {self.advice}",
            file=sys.stderr,
            flush=True,
        )
        threading.Timer(5, os._exit, [HUNG]).start()  # the library may be too broken to abort
        if self.rescue:
            self.rescue()
        MPI.COMM_WORLD.Abort(HUNG)
