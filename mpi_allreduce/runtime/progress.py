"""Driving what was started: every started run moves forward whenever any of them is tested or waited for.

A run in progress is a generator.  It yields whenever it can do no more until a message arrives, and what it yields is
its position: a number that grows when it moved.  MPI's rules let one rank wait for this run and another rank for that
one, so each must keep the other moving: all started runs of the process are in one list, and are advanced together.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

from mpi4py import MPI

from .waiting import Patience

__all__ = ["Moments", "Progress", "Running", "UnfinishedError", "anything_running", "progress_thread", "run_beside"]

Progress = Iterator[int]


class UnfinishedError(TimeoutError):
    """A run did not end in time; the message tells what it waits for, on this rank."""


@dataclass
class Moments:
    """When a started run did what, in seconds of ``time.perf_counter`` on this rank.

    Attributes
    ----------
    started : float
    first : float or None
        When it was first seen to move on behind its start: a message had arrived.  None if unknown, as in the MPI
        library's own, or where all was over when it was looked at.
    ended : float or None
        When the last message had arrived and was reduced; None while the run goes on.
    """

    started: float
    first: float | None = None
    ended: float | None = None


class Running:
    """One started run.

    Parameters
    ----------
    progress : iterator of int
        Yields its position whenever it has to wait; ends when the run is complete.
    patience : callable
        What to do while nothing moves.

    Attributes
    ----------
    done : bool
    moments : Moments
    """

    def __init__(self, progress: Progress, patience: Patience):
        self._progress = progress
        self._patience = patience
        self._error: BaseException | None = None
        self._at_start = math.inf  # what moves while it is started is local
        self.position = -1
        self.done = False
        self.moments = Moments(perf_counter())
        with _lock:
            _running.append(self)
            self._step()
            self._at_start = self.position

    def test(self) -> bool:
        """Move everything that was started; whether this run is complete."""
        if not self.done:
            _advance_all()
        self._raise()
        return self.done

    def wait(self, timeout: float | None) -> bool:
        """Move everything until this run is complete (True), or ``timeout`` seconds have passed (False)."""
        deadline = None if timeout is None else time.monotonic() + timeout
        idle = 0
        while not self.done:
            moved = _advance_all()
            if self.done:
                break
            idle = 0 if moved else idle + 1
            if idle:
                self._patience(idle)
            if deadline is not None and time.monotonic() > deadline:
                return False
        self._raise()
        return True

    def _step(self) -> bool:
        """As far as it goes without waiting; whether it moved.  Called with the lock held."""
        try:
            position = next(self._progress)
        except StopIteration:
            position = None
        except BaseException as error:  # an operator of the user's failed: whoever waits for the run must see it
            self._error = error
            position = None
        if position is None:
            self.done = True
            self.moments.ended = perf_counter()
            _running.remove(self)
            return True
        moved = position != self.position
        self.position = position
        if moved and self.moments.first is None and position > self._at_start:
            self.moments.first = perf_counter()
        return moved

    def _raise(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error


_running: list[Running] = []
_lock = threading.RLock()  # one thread at a time advances; the progress thread is the other


def anything_running() -> bool:
    """Whether a started run of this process is still incomplete."""
    return bool(_running)


def _advance_all() -> bool:
    with _lock:
        moved = [run._step() for run in tuple(_running) if not run.done]  # all of them, not up to the first that moves
        return any(moved)


def run_beside(call: Callable[[], object], patience: Patience) -> None:
    """Make a call that blocks inside the MPI library, and meanwhile move every started run forward.

    The call is made by another thread.  Without MPI_THREAD_MULTIPLE there can be none: then started runs stand still.
    """
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        call()
        return
    errors: list[BaseException] = []

    def make() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=make, name="mpi_allreduce blocking call")
    thread.start()
    idle = 0
    while thread.is_alive():
        idle = 0 if _advance_all() else idle + 1
        if idle:
            patience(idle)
    if errors:
        raise errors[0]


@contextmanager
def progress_thread(interval: float = 50e-6) -> Iterator[None]:
    """While the context lasts, a thread moves started runs forward, so that they need no ``test()``.

    Parameters
    ----------
    interval : float
        Seconds between two looks.

    Raises
    ------
    RuntimeError
        If MPI was not initialised for several threads (MPI_THREAD_MULTIPLE).

    Notes
    -----
    Computation in pure Python holds the interpreter's lock, and delays the thread; NumPy's on large arrays does not.
    The thread takes time from the core that it runs on: it pays where a core is to spare.
    """
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise RuntimeError(
            "progress_thread: MPI was initialised without MPI_THREAD_MULTIPLE; leave mpi4py.rc.thread_level at its "
            "default 'multiple', or call test() now and then instead"
        )
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            if _running:
                _advance_all()
            time.sleep(interval)

    thread = threading.Thread(target=loop, name="mpi_allreduce progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        if thread is not threading.current_thread():  # in which a context that was never left may be collected
            thread.join()
