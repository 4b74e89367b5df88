"""A schedule bound to buffers: calls on views, ready to be made in a row (blocking) or as messages arrive."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from mpi4py import MPI

from ..algorithms import Algorithm, block_offset, fitted
from ..memory import Scratch, wire
from ..memory.operators import Kernel
from .execution import Execution, Step, Task
from .program import Buffer, Copy, Message, Program, Reduce, Span, Transfer, lower
from .progress import Progress

__all__ = ["PACK_BYTES", "bind_schedule"]

PACK_BYTES = 16 << 10  # up to here copying costs less than another message


def bind_schedule(task: Task) -> Execution:
    """Bind a schedule to buffers.

    With several tags the buffer is cut into as many slices (channels), which run the same schedule independently, so
    that one communicates while another reduces or waits for a handshake.
    """
    comm, itemsize, number = task.comm, task.receive.dtype.itemsize, len(task.tags)
    segment, pack = max(1, task.segment_bytes // itemsize), PACK_BYTES // itemsize
    channels = []
    for i, tag in enumerate(task.tags):
        part = slice(block_offset(i, number, task.receive.size), block_offset(i + 1, number, task.receive.size))
        send = None if task.send is None else task.send[part]
        shape = fitted(task.name, comm.size, (part.stop - part.start) * itemsize)
        program = _program(shape, comm.rank, comm.size, part.stop - part.start, send is None, segment, pack)
        kernel = task.kernel(program.longest_reduction)
        channels.append(Channel(program, _Binder(comm, tag, send, task.receive[part], program.scratch, kernel)))
    return Scheduled(channels)


@lru_cache(maxsize=256)
def _program(algorithm: Algorithm, rank, size, count, in_place: bool, segment: int, pack: int) -> Program:
    rounds = algorithm.schedule(rank, size)
    return lower(rounds, algorithm.blocks(size), count, in_place=in_place, segment=segment, pack=pack)


class Scheduled(Execution):
    """One or several channels."""

    def __init__(self, channels: "list[Channel]"):
        self.channels = channels
        self.sent_bytes = sum(channel.sent_bytes for channel in channels)
        self.scratch_bytes = sum(channel.scratch_bytes for channel in channels)
        if len(channels) == 1:
            self.steps = [channels[0].binder.blocking(step) for step in channels[0].program.steps]
        self.resources = [*channels[0].binder.requests, *(channel.binder.scratch for channel in channels)]

    def progress(self) -> Progress:
        """Round robin, until all channels are complete."""
        if len(self.channels) == 1:
            yield from self.channels[0].progress()
            return
        running = [(channel, channel.progress()) for channel in self.channels]
        while running:
            running = [(channel, rounds) for channel, rounds in running if next(rounds, None) is not None]
            if running:
                yield sum(channel.position for channel in self.channels)

    def where(self) -> str:
        waiting = [channel.where() for channel in self.channels if channel.position < len(channel.rounds)]
        return "; ".join(waiting) or "complete on this rank"


@dataclass(frozen=True)
class _Round:
    """A transfer and the local work behind it."""

    transfer: Transfer
    starts: tuple[Callable[[], MPI.Request], ...]
    local: list[Step]


class Channel:
    """The schedule of one slice of the buffer.

    Attributes
    ----------
    position : int
        Rounds completed by the run in progress.
    """

    def __init__(self, program: Program, binder: "_Binder"):
        self.program = program
        self.binder = binder
        self.position = 0
        self.sent_bytes = program.sent * binder.itemsize
        self.scratch_bytes = program.scratch * binder.itemsize
        self._rounds: list[_Round] | None = None

    @property
    def rounds(self) -> list[_Round]:
        """Bound when first started: many plans only ever run blocking."""
        if self._rounds is None:
            rounds = [_Round(Transfer((), ()), (), [])]
            for step in self.program.steps:
                if isinstance(step, Transfer):
                    rounds.append(_Round(step, self.binder.starts(step), []))
                else:
                    rounds[-1].local.append(self.binder.local(step))
            self._rounds = rounds
        return self._rounds

    def progress(self) -> Progress:
        """Start a round's messages, yield until they are complete, do the local work; and so on."""
        testall = MPI.Request.Testall
        self.position = 0
        for step in self.rounds:
            requests = [start() for start in step.starts]
            while not testall(requests):
                yield self.position
            for call in step.local:
                call()
            self.position += 1

    def where(self) -> str:
        """What the run in progress waits for."""
        sends, receives = self.rounds[self.position].transfer
        messages = [f"{len(m.span) * self.binder.itemsize} bytes to rank {m.peer}" for m in sends]
        messages += [f"{len(m.span) * self.binder.itemsize} bytes from rank {m.peer}" for m in receives]
        tag = f"tag {self.binder.tag}"
        return f"round {self.position} of {len(self.rounds) - 1} ({tag}), in flight: {', '.join(messages)}"


class _Binder:
    """Turns steps on spans into calls on views.

    Every step becomes one callable without arguments, mostly a C function with its arguments bound, so that a run is
    a loop over calls and nothing else.
    """

    def __init__(self, comm: MPI.Intracomm, tag: int, send, receive, scratch: int, kernel: Kernel):
        self.comm = comm
        self.tag = tag
        self.itemsize = receive.dtype.itemsize
        self.scratch = Scratch(scratch, receive.dtype)
        self.memory = {Buffer.SEND: send, Buffer.RECEIVE: receive, Buffer.SCRATCH: self.scratch.array}
        self.kernel = kernel
        self.requests: list[MPI.Prequest] = []

    def local(self, step: Reduce | Copy) -> Step:
        match step:
            case Reduce(left, right, out):
                return partial(self.kernel, self.view(left), self.view(right), out=self.view(out))
            case Copy(source, target):
                return partial(np.copyto, self.view(target), self.view(source))

    def blocking(self, step: Transfer | Reduce | Copy) -> Step:
        return self.transfer(*step) if isinstance(step, Transfer) else self.local(step)

    def view(self, span: Span) -> np.ndarray:
        return self.memory[span.buffer][span.start : span.stop]

    def wire(self, span: Span) -> list:
        view = wire(self.view(span))
        return [view, view.nbytes, MPI.BYTE]

    def starts(self, transfer: Transfer) -> tuple[Callable[[], MPI.Request], ...]:
        """Calls that put the messages in flight, receives first, so that no message arrives unexpected."""
        comm, tag = self.comm, self.tag
        receives = [partial(comm.Irecv, self.wire(span), peer, tag) for peer, span in transfer.receives]
        return (*receives, *(partial(comm.Isend, self.wire(span), peer, tag) for peer, span in transfer.sends))

    def transfer(self, sends: Sequence[Message], receives: Sequence[Message]) -> Step:
        comm, tag = self.comm, self.tag
        match sends, receives:
            case [(dst, sent)], [(src, received)]:
                return partial(comm.Sendrecv, self.wire(sent), dst, tag, self.wire(received), src, tag)
            case [(dst, sent)], []:
                return partial(comm.Send, self.wire(sent), dst, tag)
            case [], [(src, received)]:
                return partial(comm.Recv, self.wire(received), src, tag)
        requests = [comm.Recv_init(self.wire(received), src, tag) for src, received in receives]
        requests += [comm.Send_init(self.wire(sent), dst, tag) for dst, sent in sends]
        self.requests += requests
        return partial(_start_and_wait, requests)


def _start_and_wait(requests: list[MPI.Prequest]) -> None:
    MPI.Prequest.Startall(requests)
    MPI.Prequest.Waitall(requests)
