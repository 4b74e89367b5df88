"""Where numbers live, and who works on them: one small interface to host memory and to devices.

A plan asks a :class:`Space` for everything that it does with arrays.  On the host that is done when it is called.  On a
device it is put into a queue (a CUDA stream), and done some time later; so there are three rules, which the plan keeps
and the tests check with a double that does nothing before it must:

1. ``enter`` first: work of the plan comes behind what the user had queued before the call;
2. ``settle`` before messages: whatever was queued is done before MPI reads or writes memory that it touches;
3. ``leave`` last: what the user queues afterwards comes behind the plan's work.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from .host import wire
from .operators import Kernel, Operator
from .pool import Scratch

__all__ = ["HOST", "Port", "Space", "Step"]

Step = Callable[[], object]


class Port(NamedTuple):
    """How a message gets to its memory.

    Attributes
    ----------
    buffer : object
        What MPI sends from, or receives into.
    steps : tuple of callable
        Work in the queue: before a message is sent, or behind its arrival.
    """

    buffer: object
    steps: tuple[Step, ...] = ()


class Space(ABC):
    """A kind of memory, with a queue of work on it.

    Attributes
    ----------
    name : str
        ``host``, or for instance ``cuda:0``.
    on_host : bool
        Whether NumPy works on it, and work is done at once.
    """

    name: str
    on_host = False

    @abstractmethod
    def scratch(self, count: int, dtype: np.dtype):
        """Memory of ``count`` elements as ``.array``, to be given back by ``.Free()``."""

    @abstractmethod
    def kernel(self, op: Operator, dtype: np.dtype, longest: int) -> Kernel:
        """The operator for arrays of this space, of up to ``longest`` elements.

        Raises
        ------
        TypeError
            If it cannot be applied to them.
        """

    @abstractmethod
    def call(self, kernel: Kernel, left, right, out) -> Step:
        """``out = left op right``."""

    @abstractmethod
    def copy(self, target, source) -> Step:
        """``target = source``, both in this space."""

    @abstractmethod
    def ports(self, rounds: Sequence[Sequence[int]]) -> Callable[[], "Ports"]:
        """What makes the ports of one round of messages after the other; ``rounds`` has the bytes of all messages."""

    @abstractmethod
    def enter(self) -> None:
        """Let work wait for what the user has queued."""

    @abstractmethod
    def settled(self) -> Callable[[], bool]:
        """Mark this moment; what is returned tells whether all work queued until then is done."""

    @abstractmethod
    def settle(self) -> None:
        """Wait until all work is done."""

    @abstractmethod
    def leave(self) -> None:
        """Let what the user queues from now on wait for the work."""


class Ports(ABC):
    """The ports of the messages that are in flight together."""

    @abstractmethod
    def outgoing(self, view) -> Port:
        """For sending a view."""

    @abstractmethod
    def incoming(self, view) -> Port:
        """For receiving into a view."""


class Direct(Ports):
    """MPI reads and writes the memory itself.

    Parameters
    ----------
    bytes_of : callable
        The bytes of a view, as mpi4py takes them.
    """

    def __init__(self, bytes_of: Callable[[object], object]):
        self._bytes_of = bytes_of

    def outgoing(self, view) -> Port:
        """The view's own bytes."""
        return Port(self._bytes_of(view))

    incoming = outgoing


class _Host(Space):
    name = "host"
    on_host = True
    _ports = Direct(wire)

    def scratch(self, count, dtype):
        return Scratch(count, dtype)

    def kernel(self, op, dtype, longest):
        return op.kernel(dtype, longest)

    def call(self, kernel, left, right, out):
        return partial(kernel, left, right, out=out)

    def copy(self, target, source):
        return partial(np.copyto, target, source)

    def ports(self, rounds):
        return lambda: self._ports

    def enter(self):
        """Nothing is ever queued."""

    settle = leave = enter

    def settled(self):
        return lambda: True


HOST = _Host()
