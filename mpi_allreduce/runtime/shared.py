"""Shared memory inside a node: each rank reduces its slice of everybody's buffer, and copies the others' from them."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial

import numpy as np

from ..algorithms import block_offset
from ..memory.operators import Kernel
from .execution import Execution, Step, Task, UnsupportedError
from .nodes import CHUNK_BYTES, NodeMemory, OnNode, run_phases
from .progress import Progress

__all__ = ["bind_shared", "reduction"]


def bind_shared(task: Task) -> Execution:
    """Bind an allreduce through the node's memory.

    Operands are combined in rank order, each element by one rank alone: so all ranks hold the same bits, and
    operators need not commute.

    Cost: for each chunk of CHUNK_BYTES one barrier, and for each rank 2 (p-1)/p + 1/p copies of the buffer and (p-1)/p
    of its reductions.  Up to SMALL_WORK / (p-1) bytes one copy, one barrier, p - 1 reductions.

    Raises
    ------
    UnsupportedError
        If ranks are on different nodes, or the MPI library makes no shared window.
    """
    if task.private.spans_nodes:
        raise UnsupportedError(
            "shared: the ranks of this communicator are on different nodes; use hierarchical, or a communicator from "
            "comm.Split_type(MPI.COMM_TYPE_SHARED)"
        )
    memory = task.private.node_memory
    return (Small if task.receive.nbytes <= memory.small_bytes else Chunked)(memory, task)


class Shared(OnNode):
    """Phases of local work with a barrier between them."""

    sent_bytes = 0
    patient = True

    def __init__(self, memory: NodeMemory):
        super().__init__(memory)
        self.steps = [self._run_blocking]

    def _run_blocking(self) -> None:
        meet = None
        for steps in self.phases():
            if meet:
                meet()
            meet = self.memory.meet
            for step in steps:
                step()

    def run(self) -> Progress:
        """Work and meet the others, phase by phase."""
        return run_phases(self.memory, self.phases())

    @abstractmethod
    def phases(self) -> Sequence[Sequence[Step]]:
        """The work before, between and behind barriers."""

    def where(self) -> str:
        return f"shared memory, barrier {self.memory.count}: missing are the local ranks {self.memory.missing()}"


class Small(Shared):
    """Everybody shows everything, and reduces everything."""

    def __init__(self, memory: NodeMemory, task: Task):
        super().__init__(memory)
        receive, source = task.receive, task.source
        kernel = task.kernel(receive.size)
        self._phases = []
        for slots in memory.small:
            parts = [slot[: receive.nbytes].view(receive.dtype) for slot in slots]
            self._phases.append([[partial(np.copyto, parts[memory.rank], source)], reduction(kernel, parts, receive)])

    def phases(self) -> Sequence[Sequence[Step]]:
        return self._phases[self.memory.count % 2]


class Chunked(Shared):
    """A pipeline of three stages: while chunk t is shown, t - 1 is reduced, and t - 2 is collected."""

    def __init__(self, memory: NodeMemory, task: Task):
        super().__init__(memory)
        longest = CHUNK_BYTES // task.receive.itemsize
        kernel = task.kernel(-(-longest // memory.size))
        starts = range(0, task.receive.size, longest)
        self._phases: list[list[Step]] = [[] for _ in range(len(starts) + 2)]
        for t, start in enumerate(starts):
            part = slice(start, start + longest)
            for lag, steps in enumerate(_stages(memory, t % 2, task.source[part], task.receive[part], kernel)):
                self._phases[t + lag] += steps

    def phases(self) -> Sequence[Sequence[Step]]:
        return self._phases


def _stages(memory: NodeMemory, parity: int, source, receive, kernel: Kernel) -> tuple[list[Step], ...]:
    """Show, reduce, collect one chunk."""
    rank, size, count = memory.rank, memory.size, receive.size
    bounds = [slice(block_offset(r, size, count), block_offset(r + 1, size, count)) for r in range(size)]
    mine = bounds[rank]
    around = [part for part in (slice(0, mine.start), slice(mine.stop, count)) if part.stop > part.start]
    chunks = [chunk[: receive.nbytes].view(receive.dtype) for chunk in memory.chunks[parity]]
    slices = [
        memory_[: (part.stop - part.start) * receive.itemsize].view(receive.dtype)
        for memory_, part in zip(memory.slices[parity], bounds, strict=True)
    ]
    show = [partial(np.copyto, chunks[rank][part], source[part]) for part in around]
    operands = [source[mine] if r == rank else chunks[r][mine] for r in range(size)]
    reduce = reduction(kernel, operands, slices[rank]) if mine.stop > mine.start else []
    filled = [(part, reduced) for part, reduced in zip(bounds, slices, strict=True) if reduced.size]
    collect = [partial(np.copyto, receive[part], reduced) for part, reduced in filled]
    return show, reduce, collect


def reduction(kernel: Kernel, operands: Sequence[np.ndarray], out: np.ndarray) -> list[Step]:
    """``out = operands[0] op operands[1] op ...``, from left to right; ``out`` may be the first of them."""
    if len(operands) == 1:
        return [partial(np.copyto, out, operands[0])]
    steps = [partial(kernel, operands[0], operands[1], out=out)]
    return steps + [partial(kernel, out, operand, out=out) for operand in operands[2:]]
