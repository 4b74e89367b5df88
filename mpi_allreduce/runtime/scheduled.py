"""A schedule bound to buffers: calls on views, ready to be made in a row (blocking) or as messages arrive."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from mpi4py import MPI

from ..algorithms import Algorithm, block_offset, fitted
from ..memory import Port, Space
from ..memory.operators import Kernel
from .execution import Execution, Step, Task
from .program import Buffer, Copy, Program, Reduce, Span, Transfer, lower
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
        channels.append(Channel(program, _Binder(task, tag, send, task.receive[part], program)))
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
            self.steps = channels[0].binder.blocking_steps()
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

    def leave(self) -> None:
        for channel in self.channels:
            channel.binder.space.leave()

    def where(self) -> str:
        waiting = [channel.where() for channel in self.channels if channel.position < len(channel.rounds)]
        return "; ".join(waiting) or "complete on this rank"


@dataclass(frozen=True)
class _Bound:
    """A transfer between memories and peers.

    Attributes
    ----------
    sends, receives : list of (list, int)
        Buffers as mpi4py takes them, and peers.
    before : list of callable
        Queued copies of what is sent.
    settles : bool
        Whether anything is queued that must be done before messages start; always False on the host.
    behind : list of callable
        Queued copies of what has arrived.
    """

    sends: list[tuple[list, int]]
    receives: list[tuple[list, int]]
    before: list[Step]
    settles: bool
    behind: list[Step]


@dataclass(frozen=True)
class _Round:
    """A transfer and the local work behind it."""

    transfer: Transfer
    bound: _Bound
    starts: list[Callable[[], MPI.Request]]
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
            rounds = [_Round(Transfer((), ()), _Bound([], [], [], False, []), [], [])]
            queued = True
            for step in self.program.steps:
                if isinstance(step, Transfer):
                    bound = self.binder.transfer(step, queued)
                    rounds.append(_Round(step, bound, self.binder.starts(bound), list(bound.behind)))
                    queued = bool(bound.behind)
                else:
                    rounds[-1].local.append(self.binder.local(step))
                    queued = True
            self._rounds = rounds
        return self._rounds

    def progress(self) -> Progress:
        """Start a round's messages, yield until they are complete, do the local work; and so on."""
        testall, space = MPI.Request.Testall, self.binder.space
        self.position = 0
        space.enter()
        for step in self.rounds:
            bound = step.bound
            for call in bound.before:
                call()
            if bound.settles:
                settled = space.settled()
                while not settled():
                    yield self.position
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

    def __init__(self, task: Task, tag: int, send, receive, program: Program):
        self.comm = task.comm
        self.tag = tag
        self.program = program
        self.itemsize = receive.dtype.itemsize
        self.space: Space = task.space()
        self.scratch = self.space.scratch(program.scratch, receive.dtype)
        self.memory = {Buffer.SEND: send, Buffer.RECEIVE: receive, Buffer.SCRATCH: self.scratch.array}
        self.kernel: Kernel = self.space.kernel(task.op, receive.dtype, program.longest_reduction)
        self.requests: list[MPI.Prequest] = []
        rounds = [] if self.space.on_host else [self._sizes(transfer) for transfer in program.transfers]
        self._ports = self.space.ports(rounds)

    def blocking_steps(self) -> list[Step]:
        """The whole run as calls that may block."""
        steps: list[Step] = [] if self.space.on_host else [self.space.enter]
        queued = True
        for step in self.program.steps:
            if isinstance(step, Transfer):
                bound = self.transfer(step, queued)
                steps += [*bound.before, *([self.space.settle] if bound.settles else []), self.sendrecv(bound)]
                steps += bound.behind
                queued = bool(bound.behind)
            else:
                steps.append(self.local(step))
                queued = True
        return steps

    def local(self, step: Reduce | Copy) -> Step:
        match step:
            case Reduce(left, right, out):
                return self.space.call(self.kernel, self.view(left), self.view(right), self.view(out))
            case Copy(source, target):
                return self.space.copy(self.view(target), self.view(source))

    def view(self, span: Span) -> np.ndarray:
        return self.memory[span.buffer][span.start : span.stop]

    def transfer(self, step: Transfer, queued: bool) -> _Bound:
        """Bind messages; ``queued`` tells whether local work came before them."""
        ports = self._ports()
        sends = [(ports.outgoing(self.view(span)), peer) for peer, span in step.sends]
        receives = [(ports.incoming(self.view(span)), peer) for peer, span in step.receives]
        before = [call for port, _ in sends for call in port.steps]
        return _Bound(
            sends=[(_wire(port), peer) for port, peer in sends],
            receives=[(_wire(port), peer) for port, peer in receives],
            before=before,
            settles=not self.space.on_host and (queued or bool(before)),
            behind=[call for port, _ in receives for call in port.steps],
        )

    def starts(self, bound: _Bound) -> list[Callable[[], MPI.Request]]:
        """Calls that put the messages in flight, receives first, so that no message arrives unexpected."""
        comm, tag = self.comm, self.tag
        receives = [partial(comm.Irecv, buffer, peer, tag) for buffer, peer in bound.receives]
        return [*receives, *(partial(comm.Isend, buffer, peer, tag) for buffer, peer in bound.sends)]

    def sendrecv(self, bound: _Bound) -> Step:
        """The messages as one call that blocks."""
        comm, tag = self.comm, self.tag
        match bound.sends, bound.receives:
            case [(sent, dst)], [(received, src)]:
                return partial(comm.Sendrecv, sent, dst, tag, received, src, tag)
            case [(sent, dst)], []:
                return partial(comm.Send, sent, dst, tag)
            case [], [(received, src)]:
                return partial(comm.Recv, received, src, tag)
        requests = [comm.Recv_init(received, src, tag) for received, src in bound.receives]
        requests += [comm.Send_init(sent, dst, tag) for sent, dst in bound.sends]
        self.requests += requests
        return partial(_start_and_wait, requests)

    def _sizes(self, transfer: Transfer) -> list[int]:
        return [len(span) * self.itemsize for _, span in (*transfer.sends, *transfer.receives)]


def _wire(port: Port) -> list:
    return [port.buffer, port.buffer.nbytes, MPI.BYTE]


def _start_and_wait(requests: list[MPI.Prequest]) -> None:
    MPI.Prequest.Startall(requests)
    MPI.Prequest.Waitall(requests)
