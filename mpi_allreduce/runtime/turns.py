"""Runs that take turns, as what they use serves one at a time."""

from collections.abc import Callable

from mpi4py import MPI

from .progress import Progress

__all__ = ["Lane", "Turns"]


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
