"""Memory that all ranks of one node see: a window with chunks and flags, and a barrier made of loads and stores."""

import atexit
from collections.abc import Sequence
from functools import reduce
from operator import or_

import numpy as np
from mpi4py import MPI

from .execution import Step, UnsupportedError
from .progress import Progress
from .turns import InTurn, Turns
from .waiting import Patience

__all__ = ["CHUNK_BYTES", "NodeMemory", "OnNode", "run_phases"]

LINE = 64  # bytes of a cache line: flags of different ranks do not share one
SMALL_WORK = 48 << 10  # bytes: a rank reduces so much in the time of a second barrier
CHUNK_BYTES = 512 << 10  # of the buffer at a time: what one rank writes is still in the cache when others read it


class NodeMemory(Turns):
    """A shared-memory window of the ranks of one node; made collectively.

    Each rank owns a part of it: a flag, and everything else twice, for even and odd phases: a small slot, a chunk of
    what it contributes, and a slice of what it has reduced.  Runs that use the memory take turns, in the order in which
    they were started, which must be the same on all ranks.

    Memory ordering.  Ranks meet in :meth:`barrier`: a rank adds one to its own flag (which nobody else writes) and
    waits until all flags are as high.  MPI_Win_sync, a full memory barrier in the unified model, stands before the
    flag is raised, so that all that the rank wrote is visible to whoever sees the flag; and after the wait, so that
    nothing is read ahead of it.  A flag is 8 aligned bytes, so it is never seen half written.

    Reuse.  What is written before barrier k is read by others between k and the announcement of k + 1, and the same
    memory is not written again before barrier k + 1 has been passed, which all announce only after they have read.
    Since memories alternate, one barrier for each phase is enough.  There is none between the last phase of a run and
    the first of the next: what the former reads (slices, odd chunks, small slots of this parity), the latter must not
    write (even chunks, small slots of the other parity).

    Attributes
    ----------
    small, chunks, slices : list of list of ndarray
        ``chunks[parity][rank]``: arrays of bytes.
    small_bytes : int
        Up to here every rank reduces everything, after one barrier.
    count : int
        Barriers so far; the same on all ranks between runs.
    """

    def __init__(self, comm: MPI.Intracomm, patience: Patience):
        super().__init__()
        self.rank, self.size = comm.rank, comm.size
        self.small_bytes = SMALL_WORK // max(comm.size - 1, 1) // LINE * LINE
        self._patience = patience
        self.count = 0
        lengths = {"flag": LINE}
        for parity in (0, 1):
            lengths |= {f"small{parity}": self.small_bytes, f"chunk{parity}": CHUNK_BYTES}
            lengths |= {f"slice{parity}": (CHUNK_BYTES // comm.size // LINE + 2) * LINE}
        info = MPI.Info.Create({"alloc_shared_noncontig": "true"})  # each rank's part in memory near its core
        try:
            self._window = MPI.Win.Allocate_shared(sum(lengths.values()) + LINE, 1, info, comm)
        except (MPI.Exception, NotImplementedError) as error:  # the latter is mpi4py's where MPI lacks the function
            raise UnsupportedError(f"shared: this MPI library makes no shared-memory window here: {error}") from error
        finally:
            info.Free()
        memories = [_split(self._window.Shared_query(rank)[0], lengths) for rank in range(comm.size)]
        self._flags = [memoryview(memory["flag"]).cast("q") for memory in memories]
        self._flags[self.rank][0] = 0
        self.small, self.chunks, self.slices = (
            [[memory[f"{name}{parity}"] for memory in memories] for parity in (0, 1)]
            for name in ("small", "chunk", "slice")
        )
        self._window.Lock_all(MPI.MODE_NOCHECK)
        self._window.Sync()
        comm.Barrier()
        _alive.append(self)

    def barrier(self) -> Progress:
        """Meet all other ranks; yields while they are not there."""
        sync = self._window.Sync
        self.count = count = self.count + 1
        sync()
        self._flags[self.rank][0] = count
        for flag in self._flags:
            while flag[0] < count:
                yield count
        sync()

    def meet(self) -> None:
        """The barrier for a rank that has nothing else to do."""
        sync = self._window.Sync
        self.count = count = self.count + 1
        sync()
        self._flags[self.rank][0] = count
        for flag in self._flags:
            if flag[0] < count:
                looks = 0
                while flag[0] < count:
                    looks += 1
                    self._patience(looks)
        sync()

    def tell(self, word: int) -> None:
        """Show a number to the others, who may look after the next barrier and before the one that follows."""
        self._flags[self.rank][1] = word

    def told(self) -> int:
        """The bits that are set in any rank's number."""
        return reduce(or_, (flag[1] for flag in self._flags))

    def missing(self) -> list[int]:
        """Local ranks that have not come to the barrier at which this one waits."""
        return [rank for rank, flag in enumerate(self._flags) if flag[0] < self.count]

    def free(self) -> None:
        """Collective."""
        if self in _alive:
            _alive.remove(self)
            self._flags = self.small = self.chunks = self.slices = []
            self._window.Unlock_all()
            self._window.Free()


_alive: list[NodeMemory] = []


@atexit.register
def _free_all() -> None:
    """A window that nobody freed makes MPICH's MPI_Finalize fail between nodes; collective, as MPI_Finalize is."""
    while _alive and not MPI.Is_finalized():
        _alive[0].free()


class OnNode(InTurn):
    """An execution through the node's memory, which waits for its turn.

    Parameters
    ----------
    memory : NodeMemory
    """

    def __init__(self, memory: NodeMemory):
        self.memory = self.turns = memory


def run_phases(memory: NodeMemory, phases: Sequence[Sequence[Step]]) -> Progress:
    """Local work with a barrier between one phase and the next."""
    for i, steps in enumerate(phases):
        if i:
            yield from memory.barrier()
        for step in steps:
            step()


def _split(memory: MPI.buffer, lengths: dict[str, int]) -> dict[str, np.ndarray]:
    """A rank's part of the window as arrays of bytes that begin at a cache line."""
    whole = np.frombuffer(memory, np.uint8)
    start = -whole.ctypes.data % LINE
    arrays = {}
    for name, length in lengths.items():
        arrays[name] = whole[start : start + length]
        start += length
    return arrays
