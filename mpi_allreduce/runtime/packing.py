"""What is done with the blocks of one channel when they travel encoded: calls on the host, or queued on a device."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI

from ..codecs import Flags, Packer
from ..codecs.device import device_packing
from .encoding import Combine, Encode, EncodedRound, Encoding, Home, Parcel
from .execution import Step, Task

__all__ = ["BoundRound", "DeviceWork", "HostWork"]

BYTE = np.dtype(np.uint8)


class Work(ABC):
    """Turns the steps of one channel into calls on memory.

    Parameters
    ----------
    task : Task
    encoding : Encoding
    part : slice
        Of the buffer.
    offsets : list of int
        Where in it each block begins, and the end.

    Attributes
    ----------
    space : Space
    scratch : list
        To be freed.
    lengths : list of int
        Bytes of each block's packet, as written or received last.
    """

    def __init__(self, task: Task, encoding: Encoding, part: slice, offsets: list[int]):
        self.space = task.space()
        self.encoding = encoding
        self.first = part.start
        self.offsets = offsets
        self.scratch = [self.space.scratch(count, BYTE) for count in (encoding.offsets[-1], encoding.landing)]
        self.wire, self.landing = (memory.array for memory in self.scratch)
        self.packets = [self.wire[i:j] for i, j in zip(encoding.offsets, encoding.offsets[1:], strict=False)]
        self.lengths = [packet.size for packet in self.packets]
        self.memory = {Home.SOURCE: task.source[part], Home.RECEIVE: task.receive[part]}
        rounds = [[parcel.nbytes for parcel in (*made.sends, *made.receives)] for made in encoding.rounds]
        self.ports = self.space.ports([] if self.space.on_host else rounds)

    def elements(self, home: Home, block: int):
        """The numbers of a block."""
        return self.memory[home][self.offsets[block] : self.offsets[block + 1]]

    def bytes_of(self, parcel: Parcel):
        """Where a message is sent from, or received."""
        memory = self.landing if parcel.landing else self.wire
        return memory[parcel.start : parcel.start + parcel.nbytes]

    def operands(self, step: Combine) -> list[tuple[bool, object]]:
        """Whether each is a packet; and the packet, or numbers."""
        size = self.packets[step.block].size
        found: list[tuple[bool, object]] = []
        for operand in step.operands:
            if operand is Home.WIRE:
                found.append((True, self.packets[step.block]))
            elif isinstance(operand, Home):
                found.append((False, self.elements(operand, step.block)))
            else:
                found.append((True, self.landing[operand.start : operand.start + size]))
        return found

    @abstractmethod
    def begin(self, key: int) -> None:
        """A run begins, with this number."""

    @abstractmethod
    def encode(self, step: Encode) -> Step:
        """Write a block's packet."""

    @abstractmethod
    def decode(self, block: int) -> Step:
        """Read a block's packet into the receive buffer."""

    @abstractmethod
    def combine(self, step: Combine) -> Step:
        """Add operands into the receive buffer."""

    @abstractmethod
    def finish(self) -> None:
        """What no message brought; and see to the flags."""

    @abstractmethod
    def all_flags(self) -> int:
        """Of all blocks, once what ``finish`` began is done."""


class HostWork(Work):
    """By NumPy."""

    def __init__(self, task: Task, encoding: Encoding, part: slice, offsets: list[int]):
        super().__init__(task, encoding, part, offsets)
        self.codec = task.codec
        self.packer = Packer(task.codec, task.receive.dtype)
        self.flags = np.zeros(len(self.packets), np.uint8)
        self.feedback = None if task.feedback is None else task.feedback.part(part)
        if self.feedback is not None:
            self.memory[Home.SOURCE] = self.feedback.residual

    def begin(self, key: int) -> None:
        self.packer.key = key
        self.flags[:] = 0
        self.packer.look_over(self.memory[Home.SOURCE])

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
        block, out, operands = step.block, self.elements(Home.RECEIVE, step.block), self.operands(step)
        packets = [operand for encoded, operand in operands if encoded]
        first, flags, combine = self.first + self.offsets[block], self.flags, self.packer.combine

        def call() -> None:
            combine(operands, out, first)
            for packet in packets:
                flags[block] |= packet[0]

        return call

    def finish(self) -> None:
        for block in self.encoding.untouched:
            values = self.elements(Home.SOURCE, block)
            self.flags[block] = 0 if np.isfinite(values).all() else Flags.NONFINITE
            np.copyto(self.elements(Home.RECEIVE, block), values)
        if self.feedback is not None:
            for block in self.encoding.unsent:
                self.elements(Home.SOURCE, block)[:] = 0
                if self.feedback.velocity is not None and self.codec.sparse:
                    self.feedback.velocity[self.offsets[block] : self.offsets[block + 1]] = 0

    def all_flags(self) -> int:
        return int(np.bitwise_or.reduce(self.flags)) if self.flags.size else 0


class DeviceWork(Work):
    """By functions of a device, in its queue: numbers are encoded before they leave it."""

    def __init__(self, task: Task, encoding: Encoding, part: slice, offsets: list[int]):
        super().__init__(task, encoding, part, offsets)
        device, number = task.device, len(self.packets)
        self.queue = self.space.queue
        self.packing = device_packing(device, task.codec, task.receive.dtype)()
        self.flags, self._none = (device.empty(number, np.dtype(np.uint32)) for _ in range(2))
        self._found = device.pinned(4 * number)
        self._found[:] = 0
        self.queue.upload(self._none.view(np.uint8), self._found)
        self.queue.synchronise()  # before pinned memory is used for something else
        self.key = 0

    def begin(self, key: int) -> None:
        self.key = key
        self.queue.copy(self.flags, self._none)

    def encode(self, step: Encode) -> Step:
        values, packet = self.elements(step.home, step.block), self.packets[step.block]
        flags = self._flags(step.block)
        return lambda: self.queue.run(self.packing.encode, values, packet, flags, self.key)

    def decode(self, block: int) -> Step:
        operands = [(True, self.packets[block])]
        return self._combine(operands, block)

    def combine(self, step: Combine) -> Step:
        return self._combine(self.operands(step), step.block)

    def finish(self) -> None:
        self.queue.download(self._found, self.flags.view(np.uint8))

    def all_flags(self) -> int:
        return int(np.bitwise_or.reduce(self._found.view(np.uint32))) if self._found.size else 0

    def _combine(self, operands: list[tuple[bool, object]], block: int) -> Step:
        out = self.elements(Home.RECEIVE, block)
        return partial(self.queue.run, self.packing.combine, operands, out, self._flags(block))

    def _flags(self, block: int):
        return self.flags[block : block + 1]


class BoundRound:
    """A round as calls.

    Attributes
    ----------
    encodes, decodes, combines : list of callable
        Before messages start, while they are on their way, behind their arrival; on a device with the copies between
        it and the memory that messages are in.
    sends : list of callable
        Each returns a request and the bytes that are sent.
    receives : list of callable
    statuses : list of Status, or None
    """

    def __init__(self, work: Work, made: EncodedRound, comm: MPI.Intracomm, tag: int):
        ports = work.ports()
        outgoing = [ports.outgoing(work.bytes_of(parcel)) for parcel in made.sends]
        incoming = [ports.incoming(work.bytes_of(parcel)) for parcel in made.receives]
        self.encodes = [work.encode(step) for step in made.encodes] + [s for port in outgoing for s in port.steps]
        self.sends = [
            _sender(comm, tag, port.buffer, parcel, work.lengths)
            for port, parcel in zip(outgoing, made.sends, strict=True)
        ]
        self.receives = [
            partial(comm.Irecv, [port.buffer, parcel.nbytes, MPI.BYTE], parcel.peer, tag)
            for port, parcel in zip(incoming, made.receives, strict=True)
        ]
        self.decodes = [work.decode(block) for block in made.decodes]
        self.combines = [s for port in incoming for s in port.steps] + [work.combine(step) for step in made.combines]
        self._varying = [(i, p.block) for i, p in enumerate(made.receives) if p.block is not None and not p.landing]
        number = len(made.sends) + len(made.receives)
        self.statuses = [MPI.Status() for _ in range(number)] if self._varying else None
        self._lengths = work.lengths

    def arrived(self) -> None:
        """Remember how long packets are that may have to be forwarded."""
        for i, block in self._varying:
            self._lengths[block] = self.statuses[i].Get_count(MPI.BYTE)


def _sender(comm, tag: int, buffer, parcel: Parcel, lengths: list[int]) -> Callable[[], tuple[MPI.Request, int]]:
    def call() -> tuple[MPI.Request, int]:
        nbytes = parcel.nbytes if parcel.block is None else lengths[parcel.block]
        return comm.Isend([buffer, nbytes, MPI.BYTE], parcel.peer, tag), nbytes

    return call
