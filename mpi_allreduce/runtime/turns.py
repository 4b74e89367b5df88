"""Runs that take turns, as what they use serves one at a time."""

from abc import abstractmethod
from collections.abc import Callable

from mpi4py import MPI

from .execution import Execution
from .progress import Progress

__all__ = ["InTurn", "Lane", "Turns"]


class Turns:
    """Lets one run go after the other, in the order in which they were started, which must be the same on all ranks."""

    def __init__(self):
        self._turns: list[object] = []

    def in_turn(self, run: Callable[[], Progress]) -> Progress:
        """``run()`` when all that was started earlier is complete."""
        turn = object()
        self._turns.append(turn)
        try:
            while self._turns[0] is not turn:
                yield -1
            yield from run()
        finally:
            self._turns.remove(turn)


class Lane(Turns):
    """A communicator for runs of several collective calls each.

    Attributes
    ----------
    comm : Intracomm
    """

    def __init__(self, comm: MPI.Intracomm):
        super().__init__()
        self.comm = comm


class InTurn(Execution):
    """An execution that may have to wait for its turn.

    Attributes
    ----------
    turns : Turns or None
        None if it runs beside others.
    """

    turns: Turns | None = None

    def progress(self) -> Progress:
        """Wait for its turn, then run."""
        return self.turns.in_turn(self.run) if self.turns else self.run()

    @abstractmethod
    def run(self) -> Progress:
        """One run, when it is its turn."""
