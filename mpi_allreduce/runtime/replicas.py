"""Do all ranks hold the same bits?  Asked at the end of a run, by an allreduce of 16 bytes."""

import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..codecs import Bound
from ..memory import MAX
from .execution import Execution, Task
from .progress import Progress

__all__ = ["DivergedError", "with_digest"]


class DivergedError(RuntimeError):
    """The results of an allreduce are not the same on all ranks; raised on all of them."""


def with_digest(task: Task, bind: Callable[[Task], Execution]) -> Execution:
    """Bind a task, and compare the digests of the results behind each run."""
    return Compared(task, bind)


def _digest(array: np.ndarray) -> int:
    """Of the bits that count: pairs and long doubles have bytes of padding."""
    fingerprint = 0
    for values in [array[name] for name in array.dtype.names] if array.dtype.names else [array]:
        values = np.ascontiguousarray(values)
        if values.dtype.char in "gG" and np.dtype(np.longdouble).itemsize == 16:
            values = np.ascontiguousarray(values.view(np.uint8).reshape(-1, 16)[:, :10])
        fingerprint = zlib.crc32(values.view(np.uint8), fingerprint)
    return fingerprint


class Compared(Execution):
    """An execution, and another one for the digest and its negative: the largest of both are equal iff all are."""

    def __init__(self, task: Task, bind: Callable[[Task], Execution]):
        self.inner = bind(task)
        self._receive = task.receive
        self._space = task.space()
        if task.device is not None:
            self._download = task.device.pinned(task.receive.nbytes)
        self._digests = np.zeros(2, np.int64)
        plain = replace(
            task, name="recursive_doubling", tags=task.tags[:1], send=None, receive=self._digests, op=MAX,
            codec=None, feedback=None, device=None, aware=False,
        )  # fmt: skip
        self.check = bind(plain)
        inner, check = self.inner, self.check
        self.sent_bytes = None if inner.sent_bytes is None else inner.sent_bytes + check.sent_bytes
        self.scratch_bytes = inner.scratch_bytes + check.scratch_bytes
        self.resources = [*inner.resources, *check.resources]
        self.native_op, self.reusable, self.tally = inner.native_op, inner.reusable, inner.tally

    def progress(self) -> Progress:
        """The run, then the comparison."""
        yield from self.inner.progress()
        mine = _digest(self._on_host())
        self._digests[:] = mine, -mine
        for position in self.check.progress():
            yield (1 << 60) + position
        highest, lowest = int(self._digests[0]), -int(self._digests[1])
        if highest != lowest:
            raise DivergedError(
                f"digest: the ranks hold different results; this rank's is {mine:08x}, and they range from "
                f"{lowest:08x} to {highest:08x}"
            )

    def _on_host(self) -> np.ndarray:
        """The result, once all work on it is done."""
        if self._space.on_host:
            return self._receive
        self.inner.leave()
        self._space.enter()
        self._space.queue.download(self._download, self._receive.view(np.uint8))
        self._space.settle()
        return self._download.view(self._receive.dtype)

    def leave(self) -> None:
        self.inner.leave()

    def error_bound(self) -> Bound | None:
        """The inner one's."""
        return self.inner.error_bound()

    def where(self) -> str:
        return f"with digest; {self.inner.where()}"
