"""What every way of executing an allreduce is given, and what it offers to a plan."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from ..codecs import Bound, Codec, Flags, Residual
from ..memory import HOST, AwareSpace, Device, Operator, Space, StagedSpace
from ..memory.operators import Kernel
from .progress import Progress

if TYPE_CHECKING:
    from .communicator import Private

__all__ = ["Execution", "Step", "Tally", "Task", "UnsupportedError"]

Step = Callable[[], object]


class UnsupportedError(RuntimeError):
    """The MPI library, or this communicator, lacks what was asked of it."""


@dataclass(frozen=True)
class Task:
    """An allreduce to be bound; the same on all ranks but for the buffers.

    Attributes
    ----------
    private : Private
        What is known of the user's communicator.
    comm : Intracomm
        Where messages go: the private duplicate, or a part of it.
    tags : sequence of int
        One for each channel.
    name : str
        Of the algorithm, with its parameter.
    send : ndarray, shape (count,), or None
        None in place.
    receive : ndarray, shape (count,)
    op : Operator
    segment_bytes : int
        Largest message.
    codec : Codec or None
        What blocks look like on the wire between nodes.
    keys : iterator of int, or None
        Gives a number for each run, the same on all ranks.
    when_nonfinite : callable, or None
        ``when_nonfinite(receive, flags, codec)`` is called at the end of a run in which any contribution was not
        finite, or overflowed in the codec.
    feedback : Residual or None
        Error feedback for this buffer.
    shape : tuple of int
        Of the user's array.
    device : Device or None
        That holds both buffers; None if they are in host memory.
    aware : bool
        Whether MPI takes pointers to the device's memory.
    staged : bool
        Whether this is one of several allreduces of a run: calls of the MPI library then take turns, as other calls
        that came between them on some ranks only would not match.
    """

    private: "Private"
    comm: MPI.Intracomm
    tags: Sequence[int]
    name: str
    send: np.ndarray | None
    receive: np.ndarray
    op: Operator
    segment_bytes: int
    codec: Codec | None = None
    keys: Iterator[int] | None = None
    when_nonfinite: Callable[[np.ndarray, Flags, Codec], None] | None = None
    feedback: Residual | None = None
    shape: tuple[int, ...] = ()
    device: Device | None = None
    aware: bool = False
    staged: bool = False

    def space(self) -> Space:
        """Where the buffers are; on a device with a queue of its own."""
        if self.device is None:
            return HOST
        return AwareSpace(self.device) if self.aware else StagedSpace(self.device)

    @property
    def source(self) -> np.ndarray:
        """Where the contribution is."""
        return self.receive if self.send is None else self.send

    def kernel(self, longest: int) -> Kernel:
        """The operator for blocks of up to ``longest`` elements."""
        return self.op.kernel(self.receive.dtype, longest)

    def on(self, comm: MPI.Intracomm, name: str, part: slice) -> "Task":
        """The same in place on a part of the buffer and of the ranks."""
        feedback = None if self.feedback is None else self.feedback.part(part)
        return replace(self, comm=comm, name=name, send=None, receive=self.receive[part], feedback=feedback)


@dataclass
class Tally:
    """What one run with a codec did on this rank.

    Attributes
    ----------
    flags : Flags
        Whether any rank's contribution was not finite, or overflowed; the same on all ranks.
    sent_bytes : int
        As counted when messages were sent.
    encode_seconds, decode_seconds : float
        Decoding includes the additions.
    runs : int
        That were begun.
    all_encode_seconds, all_decode_seconds : float
        Of all runs before this one.
    """

    flags: int = Flags.NONE
    sent_bytes: int = 0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0
    runs: int = 0
    all_encode_seconds: float = 0.0
    all_decode_seconds: float = 0.0

    def begin(self) -> None:
        """Forget what the run before found."""
        self.runs += 1
        self.all_encode_seconds += self.encode_seconds
        self.all_decode_seconds += self.decode_seconds
        self.flags, self.sent_bytes, self.encode_seconds, self.decode_seconds = Flags.NONE, 0, 0.0, 0.0


class Execution(ABC):
    """An allreduce bound to buffers.

    Attributes
    ----------
    steps : list of callable, or None
        The whole run as calls that may block, for a rank that has nothing else to do; None if there is only
        ``progress``.
    patient : bool
        Whether ``steps`` wait as a rank should whose node has fewer cores than ranks.
    exclusive : bool
        Whether a run by ``steps`` on one rank and one by ``progress`` on another do not fit together.
    sent_bytes : int or None
        What this rank sends in one run; None if unknown.
    scratch_bytes : int
        Memory held beyond the two buffers.
    resources : list
        What has to be freed behind it, by ``Free()``.
    native_op : bool
        False if the MPI library has to call back our operator.
    tally : Tally or None
        With a codec.
    reusable : bool
        False if ``resources`` are few or were made collectively, so that it must not be kept in a cache.
    """

    steps: list[Step] | None = None
    patient: bool = False
    exclusive: bool = False
    sent_bytes: int | None = None
    scratch_bytes: int = 0
    resources: Sequence[Any] = ()
    native_op: bool = True
    tally: Tally | None = None
    reusable: bool = True

    def leave(self) -> None:  # noqa: B027 - on the host there is nothing to do
        """What the user does next with the result comes behind the run; called by the user's thread."""

    @abstractmethod
    def progress(self) -> Progress:
        """One run as a generator that yields its position whenever it has to wait."""

    def error_bound(self) -> Bound | None:
        """With a codec: see :func:`mpi_allreduce.simulate.result_bound`."""
        return None

    @abstractmethod
    def where(self) -> str:
        """What the run in progress waits for, for an error message."""
