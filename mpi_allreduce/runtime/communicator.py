"""What the package keeps on a user's communicator: a duplicate of its own, tags, and the plans of ``allreduce``."""

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mpi4py import MPI

from ..decisions import DecisionTable, read_table
from ..library import library_name
from ..memory import Device, arrays
from .awareness import Awareness, find_awareness
from .execution import UnsupportedError
from .nccl import make_communicator
from .nodes import NodeMemory
from .rates import Rates, measure_rates
from .turns import Lane
from .waiting import is_crowded, patience

__all__ = ["Private", "cuda_awareness", "find_plan", "private", "use_local_device"]

PLANS_KEPT = 64  # by allreduce(), per communicator
SCRATCH_KEPT = 16 << 20  # bytes, by all of them together
SHARED_TAGS = range(64)  # for calls that are ordered anyway: allreduce() itself


@dataclass(frozen=True)
class Rails:
    """Peers on different nodes.

    Attributes
    ----------
    number : int
        The fewest ranks on any node: so many rails there are.
    comm : Intracomm or None
        The ranks with the same local rank, one on each node; None if this rank's is not below ``number``.
    """

    number: int
    comm: MPI.Intracomm | None


class Keys:
    """Numbers, one for each run: an iterator that can be set.

    Attributes
    ----------
    value : int
        The next one.
    """

    def __init__(self):
        self.value = 0

    def __iter__(self) -> "Keys":
        return self

    def __next__(self) -> int:
        self.value += 1
        return self.value - 1


class Private:
    """State attached to one communicator, and freed with it.

    Attributes
    ----------
    comm : Intracomm
        A duplicate, so that no message of ours can match one of the user's.
    node : Intracomm
        The ranks on this node.
    spans_nodes : bool
        Whether the ranks are on more than one node.
    crowded : bool
        Whether this node has fewer cores than ranks.
    patience : callable
        How to wait on this node.
    plans : OrderedDict
        The plans that :func:`mpi_allreduce.allreduce` used last.
    keys : Keys
        Numbers the runs of those plans that use a codec: they come in the same order on all ranks.
    """

    def __init__(self, comm: MPI.Intracomm):
        self.comm = comm.Dup()
        self.node = node_of(self.comm)
        self.crowded = is_crowded(self.node)
        self.spans_nodes = self.node.size < self.comm.size
        self.patience = patience(self.crowded)
        self.plans: OrderedDict[tuple, Any] = OrderedDict()
        self.keys = Keys()
        self._awareness: Awareness | None = None
        self._rates: Rates | None = None
        self._nccl = None
        self._last_tag = self.comm.Get_attr(MPI.TAG_UB)
        self._tag = self._last_tag

    @cached_property
    def node_memory(self) -> NodeMemory:
        """Memory that the ranks of the node share; made collectively when first asked for."""
        return NodeMemory(self.node, self.patience)

    @cached_property
    def rails(self) -> Rails:
        """Peers on different nodes; made collectively when first asked for."""
        number = self.comm.allreduce(self.node.size, MPI.MIN)
        mine = self.node.rank < number
        comm = self.comm.Split(self.node.rank if mine else MPI.UNDEFINED, self.comm.rank)
        return Rails(number, comm if mine else None)

    @cached_property
    def has_windows(self) -> bool:
        """Whether every node has such memory; collective when first asked for."""
        try:
            works = self.node_memory is not None
        except UnsupportedError:
            works = False
        return self.comm.allreduce(works, MPI.LAND)

    @cached_property
    def shape(self) -> tuple[int, bool]:
        """The number of nodes, and whether any of them is crowded; collective when first asked for."""
        nodes = self.comm.allreduce(int(self.node.rank == 0))
        return nodes, self.comm.allreduce(self.crowded, MPI.LOR)

    @cached_property
    def lane(self) -> Lane:
        """Where runs of several of the library's collectives take turns; made collectively when first asked for."""
        return Lane(self.comm.Dup())

    def cuda_aware(self, device: Device) -> Awareness:
        """Whether MPI takes pointers to the device's memory; collective when first asked for."""
        if self._awareness is None:
            self._awareness = find_awareness(self.comm, self.node, device)
        return self._awareness

    def nccl(self, device: Device):
        """NCCL's communicator; collective when first asked for."""
        if self._nccl is None:
            self._nccl = make_communicator(self.comm, device)
        return self._nccl

    def device_rates(self, device: Device) -> Rates:
        """How fast buses and additions are; collective when first asked for."""
        if self._rates is None:
            self._rates = measure_rates(self.comm, device)
        return self._rates

    @cached_property
    def library(self) -> str:
        """The MPI library and its version."""
        return library_name(MPI.Get_library_version())

    @cached_property
    def decisions(self) -> DecisionTable:
        """The decision table as rank 0 finds it; collective when first asked for."""
        table, error = None, ""
        if self.comm.rank == 0:
            try:
                table = read_table()
            except (OSError, ValueError) as raised:
                error = str(raised)
        table, error = self.comm.bcast((table, error))
        if error:
            raise ValueError(error)
        return table

    def free(self) -> None:
        """Collective."""
        self.plans.clear()
        made = vars(self)
        if "node_memory" in made:
            self.node_memory.free()
        if "rails" in made and self.rails.comm is not None:
            self.rails.comm.Free()
        if "lane" in made:
            self.lane.comm.Free()
        self.node.Free()
        self.comm.Free()

    def next_tags(self, number: int) -> list[int]:
        """Tags for the channels of one plan.  Plans are made in the same order on all ranks, so they agree."""
        tags = []
        for _ in range(number):
            self._tag = self._tag + 1 if self._tag < self._last_tag else SHARED_TAGS.stop
            tags.append(self._tag)
        return tags

    def shared_tags(self, number: int) -> list[int]:
        """Tags for plans that never run at the same time."""
        return list(SHARED_TAGS[:number])

    def remember(self, key: tuple | None, plan: Any) -> None:
        """Keep a plan, and drop the one that was not used for longest."""
        if key is None:
            return
        self.plans[key] = plan
        while len(self.plans) > PLANS_KEPT or sum(kept.scratch_bytes for kept in self.plans.values()) > SCRATCH_KEPT:
            self.plans.popitem(last=False)


def node_of(comm: MPI.Intracomm) -> MPI.Intracomm:
    """The ranks on this node."""
    return comm.Split_type(MPI.COMM_TYPE_SHARED)


def _free(comm: MPI.Comm, keyval: int, state: Private) -> None:
    if not MPI.Is_finalized():
        state.free()


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


def cuda_awareness(comm: MPI.Intracomm, device: Device) -> Awareness:
    """Whether MPI takes pointers to a device's memory on all ranks, and why it is believed; collective."""
    return private(comm).cuda_aware(device)


def use_local_device(comm: MPI.Intracomm) -> Device:
    """Make this rank's CUDA device the current one; collective.

    The ranks of a node get its visible devices in turn, several ranks one device where there are too few.  What
    CUDA_VISIBLE_DEVICES or SLURM hides from a rank is not counted.

    Raises
    ------
    ModuleNotFoundError, RuntimeError
        Without CuPy, or without a device; perhaps on some ranks only.
    """
    return arrays.local_device(private(comm).node.rank)


def find_plan(comm: object, key: tuple | None) -> Any:
    """The plan kept on ``comm`` under ``key``, or None; local."""
    if key is None or not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        return None
    state = comm.Get_attr(_keyval)
    if state is None or key not in state.plans:
        return None
    state.plans.move_to_end(key)
    return state.plans[key]
