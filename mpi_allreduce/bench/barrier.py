"""A barrier whose ranks leave it together."""

from functools import partial

import numpy as np
from mpi4py import MPI

__all__ = ["Barrier"]

_TAG = 1


class Barrier:
    """Dissemination barrier: ceil(lg p) Sendrecvs of one byte, at distances 1, 2, 4, ...

    The library's MPI_Barrier may let ranks go one after another, and which of its algorithms runs is unknown; both
    would show in the times.  Source: D. Hensgen, R. Finkel, U. Manber: Two algorithms for barrier synchronization,
    1988.

    Parameters
    ----------
    comm : Intracomm
        Used for nothing else while the barrier runs.
    """

    def __init__(self, comm: MPI.Intracomm):
        sent, received = np.ones((2, 1), np.uint8)
        self._steps = []
        distance = 1
        while distance < comm.size:
            ahead, behind = (comm.rank + distance) % comm.size, (comm.rank - distance) % comm.size
            self._steps.append(
                partial(comm.Sendrecv, [sent, 1, MPI.BYTE], ahead, _TAG, [received, 1, MPI.BYTE], behind, _TAG)
            )
            distance *= 2

    def __call__(self) -> None:
        for step in self._steps:
            step()
