"""What the package keeps on a user's communicator: a duplicate of its own, tags, and the plans of ``allreduce``."""

from collections import OrderedDict
from typing import Any

from mpi4py import MPI

__all__ = ["SHARED_TAG", "Private", "find_plan", "private"]

PLANS_KEPT = 64  # by allreduce(), per communicator
SCRATCH_KEPT = 16 << 20  # bytes, by all of them together
SHARED_TAG = 0  # for calls that are ordered anyway: allreduce() itself and checks


class Private:
    """State attached to one communicator, and freed with it.

    Attributes
    ----------
    comm : Intracomm
        A duplicate, so that no message of ours can match one of the user's.
    plans : OrderedDict
        The plans that :func:`mpi_allreduce.allreduce` used last.
    """

    def __init__(self, comm: MPI.Intracomm):
        self.comm = comm.Dup()
        self.plans: OrderedDict[tuple, Any] = OrderedDict()
        self._tag = SHARED_TAG
        self._last_tag = self.comm.Get_attr(MPI.TAG_UB)

    def next_tag(self) -> int:
        """A tag for one plan.  Plans are made in the same order on all ranks, so they agree."""
        self._tag = self._tag % self._last_tag + 1
        return self._tag

    def remember(self, key: tuple | None, plan: Any) -> None:
        """Keep a plan, and drop the one that was not used for longest."""
        if key is None:
            return
        self.plans[key] = plan
        while len(self.plans) > PLANS_KEPT or sum(kept.scratch_bytes for kept in self.plans.values()) > SCRATCH_KEPT:
            self.plans.popitem(last=False)


def _free(comm: MPI.Comm, keyval: int, state: Private) -> None:
    state.plans.clear()
    if not MPI.Is_finalized():
        state.comm.Free()


# The standard's recipe for libraries: an attribute that Dup does not copy, and whose deletion, which happens when the
# user frees the communicator, frees the duplicate.
_keyval = MPI.Comm.Create_keyval(delete_fn=_free)


def private(comm: MPI.Intracomm) -> Private:
    """The package's state for ``comm``; collective when it is asked for the first time."""
    state = comm.Get_attr(_keyval)
    if state is None:
        state = Private(comm)
        comm.Set_attr(_keyval, state)
    return state


def find_plan(comm: object, key: tuple | None) -> Any:
    """The plan kept on ``comm`` under ``key``, or None; local."""
    if key is None or not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        return None
    state = comm.Get_attr(_keyval)
    if state is None or key not in state.plans:
        return None
    state.plans.move_to_end(key)
    return state.plans[key]
