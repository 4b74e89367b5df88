"""Plans: an allreduce bound to a communicator and to buffers, ready to be run many times."""

import os
import weakref
from functools import partial

import numpy as np
from mpi4py import MPI

from ..codecs import Bound
from ..memory import elements
from ..memory.operators import divide
from .arguments import Call
from .communicator import Keys, Private
from .execution import Execution, Step, Tally, Task
from .methods import bind
from .nonfinite import POLICIES
from .progress import Moments, Running, UnfinishedError, anything_running, run_beside
from .replicas import with_digest

__all__ = ["Plan"]

TIMEOUT = "MPI_ALLREDUCE_TIMEOUT"


class Plan:
    """An allreduce on fixed buffers: call it to run it, or start it and wait for it later.

    Everything is prepared when the plan is made.  Plans are made by :func:`mpi_allreduce.plan`, in the same order on
    all ranks.  Several plans on one communicator may be in flight at once, and be started in any order, which may
    differ from rank to rank (``vendor``, ``shared`` and ``hierarchical`` excepted, which want the same order).
    Blocking runs must come in the same order on all ranks.  A plan holds its buffers; fill ``sendbuf`` anew and run it
    again.

    Attributes
    ----------
    sendbuf : ndarray or None
        The contribution; None in place.
    recvbuf : ndarray
        The result.
    algorithm : str
    choice : Choice or None
        Why this algorithm, if ``auto`` was asked for.
    op : Operator
    channels : int
        Slices of the buffer that run the schedule independently of each other.
    codec : Codec or None
    """

    def __init__(self, call: Call, private: Private, tags: list[int], keys: Keys):
        self.sendbuf = call.sendbuf
        self.recvbuf = call.result
        self.algorithm = call.algorithm
        self.choice = call.choice
        self.op = call.op
        self.codec = call.codec
        self.channels = len(tags)
        self._rank, self._size = private.comm.rank, private.comm.size
        self._patience = private.patience
        self._keys = keys
        task = _task(call, private, tags, keys)
        self._execution = with_digest(task, bind) if call.digest else bind(task)
        self._elements = elements(call.recvbuf)
        self._finish, self._leave = self._ends(call)
        self._running: Running | None = None
        self._moments: Moments | None = None
        self._timeout = timeout_from_environment()
        self._steps = self._blocking_steps(private)
        self._release = weakref.finalize(self, _free_all, self._execution.resources)

    @property
    def sent_bytes(self) -> int | None:
        """What this rank sends in one run (with a codec whose size varies: at most); None if unknown (the vendor's)."""
        return self._execution.sent_bytes

    @property
    def last_run(self) -> Tally | None:
        """With a codec: what the last run sent, found, and spent on the codec; None without."""
        return self._execution.tally

    @property
    def running(self) -> bool:
        """Whether a run was started and is not known to be complete."""
        return self._running is not None

    @property
    def moments(self) -> Moments | None:
        """When the run that was started last began, received its first message, and ended; None if none was started."""
        return self._moments

    @property
    def next_run(self) -> int:
        """Number of the next run, from which codecs that use chance draw; may be set to go on from a checkpoint."""
        return self._keys.value

    @next_run.setter
    def next_run(self, number: int) -> None:
        self._keys.value = number

    @property
    def error_bound(self) -> Bound | None:
        """A-priori error of the sum: its L2 norm is at most ``relative * (sum of the contributions' norms) + absolute *
        sqrt(count)``.  None without a codec, and on ranks that take no part between nodes.
        """
        return self._execution.error_bound()

    @property
    def scratch_bytes(self) -> int:
        """Memory that the plan holds beyond the two buffers, in bytes.

        A schedule needs room for what is reduced when it arrives: in place one message of at most ``segment_bytes`` for
        each peer of a round (out of place often none, as it lands in ``recvbuf``), and small scattered blocks packed
        for the wire.  So it is bounded by the wire: the messages that a rank has in flight at once; with a codec the
        encoded buffer and those, and up to a megabyte that all plans share.  ``shared`` and ``hierarchical`` use one
        window for all plans of a communicator, ``reproducible`` 2.5 buffers besides.  What plans give up goes to a pool
        that later ones draw from.
        """
        return self._execution.scratch_bytes

    @property
    def native_op(self) -> bool:
        """False if the vendor's MPI_Allreduce has to call back our kernel, as no operator of its own fits."""
        return self._execution.native_op

    @property
    def reusable(self) -> bool:
        """False if the plan holds MPI handles that are few or were made collectively, so that it must not be kept."""
        return self._execution.reusable

    def __call__(self) -> np.ndarray:
        """Run the plan; collective, blocking.

        Returns
        -------
        ndarray
            ``recvbuf``, now the reduction of all contributions; the same bits on all ranks.

        Raises
        ------
        UnfinishedError
            If the environment variable MPI_ALLREDUCE_TIMEOUT is set, and the run takes longer than so many seconds.
        """
        if self._steps is None:
            return self.start().wait()
        if anything_running():
            return self._run_among_others()
        for step in self._steps:
            step()
        if self._leave is not None:
            self._leave()
        return self.recvbuf

    def start(self) -> "Plan":
        """Begin a run, and return at once; the buffers must not be touched until it is complete.

        Messages move, and blocks are reduced, while any plan of this process is in ``test()``, ``wait()`` or a
        blocking run, or all the time in a :func:`mpi_allreduce.progress_thread`.

        Returns
        -------
        Plan
            Itself.

        Raises
        ------
        RuntimeError
            If it was started already, and not waited for.
        """
        if self._running is not None:
            raise RuntimeError("plan: it was started already; wait() for it, or make another plan")
        self._running = Running(self._progress(), self._patience)
        self._moments = self._running.moments
        return self

    def test(self) -> bool:
        """Move every started plan forward as far as possible without waiting.

        Returns
        -------
        bool
            True if this plan is complete (or was not started).
        """
        running = self._running
        if running is not None:
            try:
                running.test()
            finally:  # a run that failed is over, too
                self._close(running)
        return self._running is None

    def wait(self, timeout: float | None = None) -> np.ndarray:
        """Wait until the run is complete, and meanwhile move every started plan forward.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default the environment variable MPI_ALLREDUCE_TIMEOUT, or without it no limit.

        Returns
        -------
        ndarray
            ``recvbuf``.

        Raises
        ------
        UnfinishedError
            When the time is over.  It tells the round, the peers and the bytes that this rank waits for.  The run goes
            on: it may be waited for again.
        """
        timeout = self._timeout if timeout is None else timeout
        running = self._running
        if running is not None:
            try:
                if not running.wait(timeout):
                    raise UnfinishedError(self._state(timeout))
            finally:
                self._close(running)
        return self.recvbuf

    def free(self) -> None:
        """Give up the buffers and what the MPI library holds for the plan; it cannot be run any more.

        Raises
        ------
        RuntimeError
            If a run is in flight.
        """
        if not self.test():
            raise RuntimeError(f"plan: it cannot be freed while a run is in flight; {self._execution.where()}")
        self._steps = (_refuse_freed,)
        self._execution = _FREED
        self.sendbuf = self.recvbuf = self._elements = None
        self._release()

    def __enter__(self) -> "Plan":
        return self

    def __exit__(self, error, *_) -> None:
        if error is None or self.test():
            self.free()

    def _run_among_others(self) -> np.ndarray:
        """Block, but let runs that were started earlier go on."""
        if not self._execution.exclusive:
            return self.start().wait()
        for step in self._steps:
            run_beside(step, self._patience)
        if self._leave is not None:
            self._leave()
        return self.recvbuf

    def _blocking_steps(self, private: Private) -> tuple | None:
        """The run as calls that block inside the MPI library, where that is the best way to wait."""
        steps = self._execution.steps
        if steps is None or self._timeout is not None or (private.crowded and not self._execution.patient):
            return None
        return tuple(steps) if self._finish is None else (*steps, self._finish)

    def _ends(self, call: Call) -> tuple[Step | None, Step | None]:
        """What is done at the end of a run, and by the user's thread when it learns of the end."""
        if call.device is None:
            return (partial(divide, self._elements, self._size) if call.op.mean else None), None
        leave, array, device, size = self._execution.leave, self._elements, call.device, self._size

        def leave_and_divide() -> None:
            leave()
            if call.op.mean:
                device.divide(array, size)

        return None, leave_and_divide

    def _close(self, running: Running) -> None:
        """Notice that a run is over."""
        if running.done:
            self._running = None
            if self._leave is not None:
                self._leave()

    def _progress(self):
        yield from self._execution.progress()
        if self._finish is not None:
            self._finish()

    def _state(self, seconds: float) -> str:
        return (
            f"{self.algorithm} of {self._elements.size} elements of {self._elements.dtype} on rank {self._rank} of "
            f"{self._size} is not complete after {seconds:g} s; {self._execution.where()}"
        )


def timeout_from_environment() -> float | None:
    """Seconds, or None if MPI_ALLREDUCE_TIMEOUT is not set.

    Raises
    ------
    ValueError
        If it is not a positive number.
    """
    text = os.environ.get(TIMEOUT, "")
    try:
        seconds = float(text) if text else None
    except ValueError:
        seconds = 0.0
    if seconds is not None and not seconds > 0:
        raise ValueError(f"{TIMEOUT}: expected seconds, got {text!r}")
    return seconds


def _task(call: Call, private: Private, tags: list[int], keys: Keys) -> Task:
    send = None
    if call.sendbuf is not None:
        send = elements(call.sendbuf)
        if call.device is None:
            send = send.view()
            send.flags.writeable = False  # so that no function of the user's can change the contribution
    receive = elements(call.recvbuf)
    return Task(
        private, private.comm, tags, call.algorithm, send, receive, call.op, call.segment_bytes,
        call.codec, keys, POLICIES[call.nan], call.feedback, call.shape, call.device,
        call.device is not None and private.cuda_aware(call.device).aware,
    )  # fmt: skip


class _Freed(Execution):
    def progress(self):
        _refuse_freed()
        yield

    def where(self) -> str:
        return "freed"


_FREED = _Freed()


def _refuse_freed() -> None:
    raise RuntimeError("plan: it was freed and cannot be run any more; make a new one")


def _free_all(resources: list) -> None:
    if not MPI.Is_finalized():
        for resource in resources:
            resource.Free()
