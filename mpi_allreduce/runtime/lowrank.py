"""PowerSGD: two allreduces of narrow matrices instead of one of a wide one."""

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

import numpy as np

from ..codecs import Bound, Flags
from ..codecs.lowrank import make_orthonormal, product, times, transposed_times
from ..memory import SUM, Scratch
from .compressed import settle
from .execution import Execution, Tally, Task
from .progress import Progress
from .stages import InStages

__all__ = ["bind_lowrank"]


def bind_lowrank(task: Task, bind: Callable[[Task], Execution]) -> Execution:
    """Bind PowerSGD; ``bind`` makes the allreduces of P and Q, in place and without a codec.

    Cost: allreduces of a r and b r elements one after the other, and 6 a b r operations.
    """
    return LowRank(task, bind)


class LowRank(InStages):
    """Multiply, allreduce, make orthonormal, multiply, allreduce, multiply."""

    def __init__(self, task: Task, bind: Callable[[Task], Execution]):
        self.task = task
        rows, columns = task.shape
        start = task.codec.start(task.shape, task.receive.dtype)
        rank = start.shape[1]
        memory = [Scratch(n, task.receive.dtype) for n in (rows * rank, columns * rank)]
        flat_p, flat_q = (scratch.array for scratch in memory)
        self.p, self.q = flat_p.reshape(rows, rank), flat_q.reshape(columns, rank)
        self.q[:] = start
        inner = replace(task, codec=None, feedback=None, send=None, op=SUM, staged=True)
        super().__init__(bind(replace(inner, receive=flat)) for flat in (flat_p, flat_q))
        self.resources += memory
        self.reusable = False  # plans found again by addresses would have Qs of different age on different ranks
        self.scratch_bytes += flat_p.nbytes + flat_q.nbytes
        self.receive = task.receive.reshape(task.shape)
        feedback = task.feedback
        self.matrix = (task.source if feedback is None else feedback.residual).reshape(task.shape)
        self.tally = Tally()

    def error_bound(self) -> Bound:
        """There is none: it depends on how fast the singular values fall."""
        return Bound(np.inf)

    def run(self) -> Progress:
        """One step of the shared power iteration."""
        task, tally = self.task, self.tally
        tally.begin()
        started = perf_counter()
        if task.feedback is not None:
            task.feedback.add(task.source)
        with np.errstate(all="ignore"):
            times(self.matrix, self.q, self.p)
        tally.encode_seconds += perf_counter() - started
        yield from self.stage(0)
        started = perf_counter()
        finite = bool(np.isfinite(self.p).all())  # the same on all ranks, as P is
        if finite:
            make_orthonormal(self.p)
        with np.errstate(all="ignore"):
            transposed_times(self.matrix, self.p, self.q)
        if task.feedback is not None:  # what this rank's part of the product lacks of its contribution
            product(self.p, self.q, self.receive)
            np.subtract(self.matrix, self.receive, out=self.matrix)
        tally.encode_seconds += perf_counter() - started
        yield from self.stage(1)
        started = perf_counter()
        product(self.p, self.q, self.receive)
        tally.decode_seconds += perf_counter() - started
        tally.sent_bytes = self.sent_bytes or 0
        if not finite or not np.isfinite(self.q).all():
            tally.flags = Flags.NONFINITE
            self.q[:] = task.codec.start(task.shape, task.receive.dtype)
        settle(task, tally)
