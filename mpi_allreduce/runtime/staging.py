"""Device buffers for whatever works on the host only: the buffer goes down, is reduced there, and comes up again."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from ..algorithms import block_offset, names
from ..codecs import Bound
from ..codecs.device import device_packing
from ..memory import StagedSpace
from .execution import Execution, Task
from .nonfinite import POLICIES
from .progress import Progress
from .vendor import is_native, takes_device

__all__ = ["VARIABLE", "bind_staged", "needs_host"]

VARIABLE = "MPI_ALLREDUCE_REDUCE_ON"
PLACES = ("host", "device")


def needs_host(task: Task) -> bool:
    """Whether a task on a device is reduced on the host.

    Schedules without a codec run on the device where MPI takes its pointers.  Where it does not, messages are staged in
    any case; what is added where is a question of speed, and decided by measurement or MPI_ALLREDUCE_REDUCE_ON.  With a
    codec that the device has, numbers are encoded before they leave it.
    """
    if task.codec is not None:
        return not _encoded_on_device(task)
    if task.name == "nccl":
        return False
    if task.name.partition(":")[0] in names():
        return not task.aware and _reduce_on(task) == "host"
    return not (task.aware and takes_device(task.name) and is_native(task.receive.dtype, task.op))


def _encoded_on_device(task: Task) -> bool:
    """Whether the device has the codec, and nothing else that is asked for needs the host.

    Then the bus carries what is encoded, whatever the host could add.
    """
    return (
        os.environ.get(VARIABLE, "") != "host"
        and task.name.partition(":")[0] in names()
        and task.comm.size > 1
        and task.feedback is None
        and task.when_nonfinite is not POLICIES["skip"]
        and device_packing(task.device, task.codec, task.receive.dtype) is not None
    )


def _reduce_on(task: Task) -> str:
    place = os.environ.get(VARIABLE, "")
    if place not in ("", *PLACES):
        raise ValueError(f"{VARIABLE}: expected {' or '.join(PLACES)}, got {place!r}")
    return place or task.private.device_rates(task.device).reduce_on(task)


def bind_staged(task: Task, bind: Callable[[Task], Execution]) -> Execution:
    """Bind a task on pinned host memory; several tags are as many channels, whose copies and messages overlap.

    Cost: the buffer crosses the bus once in each direction.
    """
    return HostStaged(task, bind)


class HostStaged(Execution):
    """Channels that download, run the task on the host, and upload."""

    def __init__(self, task: Task, bind: Callable[[Task], Execution]):
        number, count = len(task.tags), task.receive.size
        if task.name.partition(":")[0] not in names() or task.codec is not None:
            number = 1  # the ways that are no schedules want one order on all ranks; a codec's work is the host's
        bounds = [block_offset(i, number, count) for i in range(number + 1)]
        self._channels = [
            _Channel(task, tags, slice(first, stop), bind)
            for tags, first, stop in zip(_shares(task.tags, number), bounds, bounds[1:], strict=False)
        ]
        inner = [channel.inner for channel in self._channels]
        sent = [execution.sent_bytes for execution in inner]
        self.sent_bytes = None if None in sent else sum(sent)
        self.scratch_bytes = sum(execution.scratch_bytes for execution in inner) + task.receive.nbytes
        self.resources = [resource for execution in inner for resource in execution.resources]
        self.native_op = all(execution.native_op for execution in inner)
        self.reusable = all(execution.reusable for execution in inner)
        self.tally = inner[0].tally

    def progress(self) -> Progress:
        """Round robin, until all channels are complete."""
        running = [channel.progress() for channel in self._channels]
        positions = [0] * len(running)
        while any(each is not None for each in running):
            for i, each in enumerate(running):
                if each is not None:
                    position = next(each, None)
                    running[i] = None if position is None else each
                    positions[i] = position if position is not None else 1 << 62
            if any(each is not None for each in running):
                yield sum(positions)

    def leave(self) -> None:
        for channel in self._channels:
            channel.space.leave()

    def error_bound(self) -> Bound | None:
        """The inner one's."""
        return self._channels[0].inner.error_bound()

    def where(self) -> str:
        return "staged on the host; " + "; ".join(channel.where() for channel in self._channels)


class _Channel:
    """One slice of the buffer."""

    def __init__(self, task: Task, tags, part: slice, bind: Callable[[Task], Execution]):
        self.space = StagedSpace(task.device)
        self._source, self._receive = task.source[part], task.receive[part]
        nbytes = self._receive.nbytes
        self._bytes = task.device.pinned(nbytes)
        mirror = self._bytes.view(task.receive.dtype)
        feedback = None if task.feedback is None else task.feedback.part(part)
        shape = task.shape if len(mirror) == task.receive.size else mirror.shape
        self.inner = bind(
            replace(
                task, tags=tags, send=None, receive=mirror, device=None, aware=False, feedback=feedback, shape=shape
            )
        )
        self._at = "complete on this rank"

    def progress(self) -> Iterator[int]:
        """Down, run, up."""
        queue = self.space.queue
        self.space.enter()
        queue.download(self._bytes, self._source.view(np.uint8))
        settled = self.space.settled()
        self._at = "on its way from the device"
        while not settled():
            yield 0
        self._at = "running"
        for position in self.inner.progress():
            yield 1 + position
        queue.upload(self._receive.view(np.uint8), self._bytes)
        self._at = "complete on this rank"

    def where(self) -> str:
        return self.inner.where() if self._at == "running" else self._at


def _shares(tags, number: int) -> list:
    """All tags for a single channel, else one for each."""
    return [list(tags)] if number == 1 else [[tag] for tag in tags[:number]]
