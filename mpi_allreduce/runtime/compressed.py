"""A schedule whose blocks travel encoded."""

import itertools
from collections.abc import Iterator
from functools import lru_cache
from time import perf_counter

import ml_dtypes
from mpi4py import MPI

from ..algorithms import Algorithm, block_offset, fitted
from ..codecs import Bound, Codec, Flags, packet_bytes
from ..simulate import result_bound
from .encoding import Encoding, finished_blocks_travel, lower
from .execution import Execution, Step, Tally, Task
from .packing import BoundRound, DeviceWork, HostWork
from .progress import Progress

__all__ = ["bind_compressed", "settle"]


def bind_compressed(task: Task) -> Execution:
    """Bind a schedule to buffers and a codec; several tags are as many channels, as in :func:`.bind_schedule`."""
    return Compressed(task)


class Compressed(Execution):
    """One or several channels; what was found on the way is acted upon at the end of a run.

    With one rank nothing is sent, so nothing is encoded either, and the result is exact.
    """

    def __init__(self, task: Task):
        number, count = len(task.tags), task.receive.size
        bounds = [block_offset(i, number, count) for i in range(number + 1)]
        self.task = task
        self.channels = [
            _Channel(task, tag, first, stop) for tag, first, stop in zip(task.tags, bounds, bounds[1:], strict=False)
        ]
        self.sent_bytes = sum(channel.most_bytes for channel in self.channels)
        self.scratch_bytes = sum(channel.scratch_bytes for channel in self.channels)
        self.resources = [memory for channel in self.channels for memory in channel.scratch]
        self.tally = Tally()

    def progress(self) -> Progress:
        """Round robin, until all channels are complete."""
        yield from self.run()
        settle(self.task, self.tally)

    def run(self) -> Progress:
        """The same, without the judgement on what was found."""
        self.tally.begin()
        if self.task.feedback is not None:
            self.task.feedback.add(self.task.source)
        key = next(self.task.keys)
        running = [(channel, channel.progress(key, self.tally)) for channel in self.channels]
        while running:
            running = [(channel, rounds) for channel, rounds in running if next(rounds, None) is not None]
            if running:
                yield sum(channel.position for channel in self.channels)

    def error_bound(self) -> Bound:
        """Of the whole sum, as far as it is encoded, with the rounding of buffers of 16 bits."""
        size, dtype = self.task.comm.size, self.task.receive.dtype
        bound = result_bound(self.task.codec, self.task.name, size)
        if dtype.itemsize > 2:
            return bound
        rounding = float(ml_dtypes.finfo(dtype).eps) * size
        return Bound(bound.relative + rounding * (1 + bound.relative), bound.absolute)

    def where(self) -> str:
        waiting = [channel.where() for channel in self.channels if channel.position < len(channel.rounds)]
        return "; ".join(waiting) or "complete on this rank"


def settle(task: Task, tally: Tally) -> None:
    """Do what the task wants where a contribution was not finite, or overflowed; all ranks know, so all do the same.

    Raises
    ------
    NonFiniteError
    """
    if not tally.flags:
        return
    if task.feedback is not None:
        task.feedback.forget_nonfinite()
    task.when_nonfinite(task.receive, Flags(tally.flags), task.codec)


class _Channel:
    """The schedule of one slice of the buffer."""

    def __init__(self, task: Task, tag: int, first: int, stop: int):
        comm, part = task.comm, slice(first, stop)
        count = stop - first
        shape = fitted(task.name, comm.size, count * task.receive.itemsize)
        encoding = _encoding(shape, comm.rank, comm.size, count, task.codec, task.segment_bytes)
        blocks = shape.blocks(comm.size)
        offsets = [block_offset(b, blocks, count) for b in range(blocks + 1)]
        work = (HostWork if task.device is None else DeviceWork)(task, encoding, part, offsets)
        self.tag = tag
        self.task = task
        self.position = 0
        self.work = work
        self.encoding = encoding
        self.scratch = work.scratch
        self.rounds = [BoundRound(work, made, comm, tag) for made in encoding.rounds]
        self.most_bytes = sum(parcel.nbytes for made in encoding.rounds for parcel in made.sends)
        self.scratch_bytes = encoding.offsets[-1] + encoding.landing

    def progress(self, key: int, tally: Tally) -> Iterator[int]:
        """Round after round; what is encoded and decoded, and how long that takes, is added to ``tally``.

        On a device that is the time that queueing takes.
        """
        self.position = 0
        work, testall, space = self.work, MPI.Request.Testall, self.work.space
        space.enter()
        work.begin(key & 0xFFFFFFFF)
        for step in self.rounds:
            tally.encode_seconds += _timed(step.encodes)
            if not space.on_host:
                yield from self._settle()
            requests = [start() for start in step.receives]
            for start in step.sends:
                request, nbytes = start()
                requests.append(request)
                tally.sent_bytes += nbytes
            tally.decode_seconds += _timed(step.decodes)
            statuses = step.statuses
            while not testall(requests, statuses):
                yield self.position
            step.arrived()
            tally.decode_seconds += _timed(step.combines)
            self.position += 1
        work.finish()
        yield from self._settle()
        tally.flags |= work.all_flags()

    def _settle(self) -> Iterator[int]:
        settled = self.work.space.settled()
        while not settled():
            yield self.position

    def where(self) -> str:
        if self.position == len(self.rounds):
            return "complete on this rank"
        made = self.encoding.rounds[self.position]
        messages = [f"{parcel.nbytes} bytes to rank {parcel.peer}" for parcel in made.sends]
        messages += [f"{parcel.nbytes} bytes from rank {parcel.peer}" for parcel in made.receives]
        tag = f"tag {self.tag}, {self.task.codec.name}"
        return f"round {self.position} of {len(self.rounds) - 1} ({tag}), in flight: {', '.join(messages)}"


def _timed(calls: list[Step]) -> float:
    if not calls:
        return 0.0
    started = perf_counter()
    for call in calls:
        call()
    return perf_counter() - started


@lru_cache(maxsize=256)
def _encoding(algorithm: Algorithm, rank: int, size: int, count: int, codec: Codec, segment: int) -> Encoding:
    blocks = algorithm.blocks(size)
    offsets = [block_offset(block, blocks, count) for block in range(blocks + 1)]
    sizes = [packet_bytes(codec, stop - start) for start, stop in itertools.pairwise(offsets)]
    travels = finished_blocks_travel(algorithm, size)
    return lower(algorithm.schedule(rank, size), sizes, fixed=codec.fixed, travels=travels, segment=segment)
