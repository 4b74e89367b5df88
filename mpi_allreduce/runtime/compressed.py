"""A schedule whose blocks travel encoded."""

import itertools
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from time import perf_counter

import ml_dtypes
import numpy as np
from mpi4py import MPI

from ..algorithms import Algorithm, block_offset, fitted
from ..codecs import Bound, Codec, Flags, Packer, packet_bytes
from ..memory import Scratch
from ..simulate import result_bound
from .encoding import Combine, Encode, EncodedRound, Encoding, Home, Parcel, finished_blocks_travel, lower
from .execution import Execution, Step, Tally, Task
from .progress import Progress

__all__ = ["bind_compressed", "settle"]

BYTE = np.dtype(np.uint8)


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
        binder = _Binder(task, tag, encoding, part, [block_offset(b, blocks, count) for b in range(blocks + 1)])
        self.tag = tag
        self.task = task
        self.first = part
        self.position = 0
        self.binder = binder
        self.encoding = encoding
        self.scratch = binder.scratch
        self.rounds = [_BoundRound(binder, made) for made in encoding.rounds]
        self.most_bytes = sum(parcel.nbytes for made in encoding.rounds for parcel in made.sends)
        self.scratch_bytes = encoding.offsets[-1] + encoding.landing

    def progress(self, key: int, tally: Tally) -> Iterator[int]:
        """Round after round; what is encoded and decoded, and how long that takes, is added to ``tally``."""
        self.position = 0
        binder, testall = self.binder, MPI.Request.Testall
        binder.packer.key = key & 0xFFFFFFFF
        binder.flags[:] = 0
        binder.packer.look_over(binder.memory[Home.SOURCE])
        for step in self.rounds:
            started = perf_counter()
            for call in step.encodes:
                call()
            tally.encode_seconds += perf_counter() - started
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
        binder.finish(self.encoding)
        tally.flags |= binder.all_flags()

    def where(self) -> str:
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


class _Binder:
    """Turns the steps of one channel into calls on memory."""

    def __init__(self, task: Task, tag: int, encoding: Encoding, part: slice, offsets: list[int]):
        self.comm, self.tag, self.codec = task.comm, tag, task.codec
        self.first = part.start
        self.offsets = offsets
        self.packer = Packer(task.codec, task.receive.dtype)
        self.scratch = [Scratch(encoding.offsets[-1], BYTE), Scratch(encoding.landing, BYTE)]
        self.wire, self.landing = (memory.array for memory in self.scratch)
        self.packets = [self.wire[i:j] for i, j in zip(encoding.offsets, encoding.offsets[1:], strict=False)]
        self.lengths = [packet.size for packet in self.packets]  # as written or received last
        self.flags = np.zeros(len(self.packets), np.uint8)
        self.feedback = None if task.feedback is None else task.feedback.part(part)
        source = task.source[part] if self.feedback is None else self.feedback.residual
        self.memory = {Home.SOURCE: source, Home.RECEIVE: task.receive[part]}

    def elements(self, home: Home, block: int) -> np.ndarray:
        return self.memory[home][self.offsets[block] : self.offsets[block + 1]]

    def encode(self, step: Encode) -> Step:
        block = step.block
        values, packet, first = self.elements(step.home, block), self.packets[block], self.first + self.offsets[block]
        observer = None
        if self.feedback is not None:
            observer = self.feedback.observer(
                self.first, holders=step.holders, first=step.first, last=step.last, sparse=self.codec.sparse
            )
        flags, lengths, encode, own = self.flags, self.lengths, self.packer.encode, step.home is Home.SOURCE

        def call() -> None:
            lengths[block] = encode(values, packet, first, int(flags[block]), observer, contribution=own)
            flags[block] = packet[0]

        return call

    def decode(self, block: int) -> Step:
        out, packet, first = self.elements(Home.RECEIVE, block), self.packets[block], self.first + self.offsets[block]
        flags, decode = self.flags, self.packer.decode

        def call() -> None:
            decode(packet, out, first)
            flags[block] |= packet[0]

        return call

    def combine(self, step: Combine) -> Step:
        block, out = step.block, self.elements(Home.RECEIVE, step.block)
        landed = [self.landing[o.start : o.start + self.packets[block].size]
                  for o in step.operands if not isinstance(o, Home)]  # fmt: skip
        places = iter(landed)
        operands = []
        for operand in step.operands:
            if not isinstance(operand, Home):
                operands.append((True, next(places)))
            elif operand is Home.WIRE:
                operands.append((True, self.packets[block]))
            else:
                operands.append((False, self.elements(operand, block)))
        first, flags, combine = self.first + self.offsets[block], self.flags, self.packer.combine

        def call() -> None:
            combine(operands, out, first)
            for packet in landed:
                flags[block] |= packet[0]

        return call

    def bytes_of(self, parcel: Parcel) -> np.ndarray:
        memory = self.landing if parcel.landing else self.wire
        return memory[parcel.start : parcel.start + parcel.nbytes]

    def send(self, parcel: Parcel) -> Callable[[], tuple[MPI.Request, int]]:
        comm, tag, lengths, memory = self.comm, self.tag, self.lengths, self.bytes_of(parcel)

        def call() -> tuple[MPI.Request, int]:
            nbytes = parcel.nbytes if parcel.block is None else lengths[parcel.block]
            return comm.Isend([memory, nbytes, MPI.BYTE], parcel.peer, tag), nbytes

        return call

    def receive(self, parcel: Parcel) -> Callable[[], MPI.Request]:
        return partial(self.comm.Irecv, [self.bytes_of(parcel), parcel.nbytes, MPI.BYTE], parcel.peer, self.tag)

    def finish(self, encoding: Encoding) -> None:
        """What no message brought."""
        for block in encoding.untouched:
            values = self.elements(Home.SOURCE, block)
            self.flags[block] = 0 if np.isfinite(values).all() else Flags.NONFINITE
            np.copyto(self.elements(Home.RECEIVE, block), values)
        if self.feedback is not None:
            for block in encoding.unsent:
                self.elements(Home.SOURCE, block)[:] = 0
                if self.feedback.velocity is not None and self.codec.sparse:
                    self.feedback.velocity[self.offsets[block] : self.offsets[block + 1]] = 0

    def all_flags(self) -> int:
        return int(np.bitwise_or.reduce(self.flags)) if self.flags.size else 0


class _BoundRound:
    """A round as calls."""

    def __init__(self, binder: _Binder, made: EncodedRound):
        self.encodes = [binder.encode(step) for step in made.encodes]
        self.sends = [binder.send(parcel) for parcel in made.sends]
        self.receives = [binder.receive(parcel) for parcel in made.receives]
        self.decodes = [binder.decode(block) for block in made.decodes]
        self.combines = [binder.combine(step) for step in made.combines]
        self._varying = [(i, p.block) for i, p in enumerate(made.receives) if p.block is not None and not p.landing]
        number = len(made.sends) + len(made.receives)
        self.statuses = [MPI.Status() for _ in range(number)] if self._varying else None
        self._lengths = binder.lengths

    def arrived(self) -> None:
        """Remember how long packets are that may have to be forwarded."""
        for i, block in self._varying:
            self._lengths[block] = self.statuses[i].Get_count(MPI.BYTE)
