"""Two levels: reduce-scatter in the node, a schedule between peers of different nodes, allgather in the node."""

from functools import partial

import numpy as np

from ..algorithms import block_offset
from ..codecs import Bound
from .compressed import bind_compressed, settle
from .execution import Execution, Step, Tally, Task
from .nodes import CHUNK_BYTES, NodeMemory, OnNode, run_phases
from .progress import Progress
from .scheduled import bind_schedule
from .shared import reduction

__all__ = ["bind_hierarchical"]

BETWEEN_ENCODED = "pairwise"  # contributions are encoded once, whatever the number of nodes
BETWEEN = "circulant"  # unless the name says otherwise: fewest rounds at full bandwidth, for any number of nodes


def bind_hierarchical(task: Task) -> Execution:
    """Bind ``hierarchical`` or ``hierarchical:SCHEDULE``.

    With L the fewest ranks on any node, the buffer is cut into L slices; local rank l of each node reduces slice l, and
    shares it with its peers on the other nodes on a rail of its own.  Local ranks from L on only contribute and
    collect.  So unequal numbers of ranks on the nodes are no special case.

    A codec is used between nodes only.

    Cost, for each rank of N nodes with q ranks: through memory 2 copies and (q-1)/q reductions of the buffer; between
    nodes what the schedule costs on N ranks for 1/q of it; so a node sends 2 (N-1)/N of the buffer, whatever q.
    """
    return Hierarchical(task)


class Hierarchical(OnNode):
    """Reduce-scatter, rails, allgather."""

    def __init__(self, task: Task):
        super().__init__(task.private.node_memory)
        memory = self.memory
        rails = task.private.rails
        schedule = task.name.partition(":")[2] or (BETWEEN if task.codec is None else BETWEEN_ENCODED)
        count, itemsize = task.receive.size, task.receive.itemsize
        slices = [slice(block_offset(r, rails.number, count), block_offset(r + 1, rails.number, count))
                  for r in range(rails.number)]  # fmt: skip
        width = CHUNK_BYTES // itemsize // rails.number
        self._scatter = _scatter(memory, task, slices, width)
        self._gather = _gather(memory, task.receive, slices, CHUNK_BYTES // itemsize)
        self._between: Execution | None = None
        self.sent_bytes = self.scratch_bytes = 0
        self.tally = None if task.codec is None else Tally()
        self._task = task
        if rails.comm is not None:
            own = task.on(rails.comm, schedule, slices[memory.rank])
            self._between = bind_schedule(own) if task.codec is None else bind_compressed(own)
            self.sent_bytes, self.scratch_bytes = self._between.sent_bytes, self._between.scratch_bytes
            self.resources = self._between.resources
            self.tally = self._between.tally

    def run(self) -> Progress:
        """Phase by phase, the schedule between."""
        yield from run_phases(self.memory, self._scatter)
        if self._between is not None:
            yield from (self._between.progress if self.tally is None else self._between.run)()
        elif self.tally is not None:
            self.tally.begin()
            next(self._task.keys)  # as those between nodes do: keys are the same on all ranks
        if self.tally is not None:
            self.memory.tell(self.tally.flags)
        yield from self.memory.barrier()  # all have reduced their slices, so that chunks may be written again
        if self.tally is not None:
            self.tally.flags = self.memory.told()
        yield from run_phases(self.memory, self._gather)
        if self.tally is not None:
            settle(self._task, self.tally)

    def error_bound(self) -> Bound | None:
        """Of the sum between nodes: sums in a node are exact, and their norms no more than the ranks' together."""
        return self._between.error_bound() if self._between is not None else None

    def where(self) -> str:
        missing = self.memory.missing()
        if missing:
            return f"shared memory, barrier {self.memory.count}: missing are the local ranks {missing}"
        return f"between nodes: {self._between.where()}" if self._between else "complete on this rank"


def _scatter(memory: NodeMemory, task: Task, slices: list[slice], width: int) -> list[list[Step]]:
    """While part t of all slices is shown, part t - 1 is reduced, by the local rank whose slice it is."""
    kernel = task.kernel(width)
    longest = max(part.stop - part.start for part in slices)
    phases: list[list[Step]] = [[] for _ in range(-(-longest // width) + 1)]
    for t in range(len(phases) - 1):
        chunks = [_elements(chunk, task.receive.dtype) for chunk in memory.chunks[t % 2]]
        for owner, part in enumerate(slices):
            start, stop = part.start + t * width, min(part.start + (t + 1) * width, part.stop)
            if start >= stop:
                continue
            place = slice(owner * width, owner * width + stop - start)
            phases[t].append(partial(np.copyto, chunks[memory.rank][place], task.source[start:stop]))
            if owner == memory.rank:
                operands = [chunk[place] for chunk in chunks]
                phases[t + 1] += reduction(kernel, operands, task.receive[start:stop])
    return phases


def _gather(memory: NodeMemory, receive: np.ndarray, slices: list[slice], width: int) -> list[list[Step]]:
    """While part t of each slice is shown by its owner, part t - 1 is collected by the others."""
    longest = max(part.stop - part.start for part in slices)
    number = -(-longest // width)
    phases: list[list[Step]] = [[] for _ in range(number + 1)]
    for t in range(number):
        parity = (
            number - t
        ) % 2  # the last is odd, as what is collected last must not be what the next run writes first
        for owner, part in enumerate(slices):
            mine = receive[part.start + t * width : min(part.start + (t + 1) * width, part.stop)]
            shown = _elements(memory.chunks[parity][owner], receive.dtype)[: mine.size]
            if not mine.size:
                continue
            if owner == memory.rank:
                phases[t].append(partial(np.copyto, shown, mine))
            else:
                phases[t + 1].append(partial(np.copyto, mine, shown))
    return phases


def _elements(memory: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Bytes as whole elements."""
    return memory[: memory.nbytes // dtype.itemsize * dtype.itemsize].view(dtype)
