"""A schedule lowered to element ranges: what one rank sends, receives, reduces and copies, step by step.

This is pure: the plan binds a program to arrays and to a communicator, and the tests run it without MPI.

What lowering gains over a naive walk of the rounds:

* Out of place there is no initial copy.  A block is read from the send buffer until it is first written; a reduction
  into such a block receives into the receive buffer and combines there, so that no scratch memory is needed either.
* Neighbouring blocks travel as one message; empty blocks and empty messages vanish.
* Where the blocks of an exchange are not contiguous, a small message is packed and a large one is sent in parts.
* Messages are cut into segments, each reduced while it is still in the cache; so the number of elements has no limit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import NamedTuple

from ..algorithms import COPY, REDUCE_LEFT, Action, Round, block_offset

__all__ = ["Buffer", "Copy", "Message", "Program", "Reduce", "Span", "Transfer", "lower"]


class Buffer(Enum):
    """The three memories that a program works on."""

    SEND = "send"
    RECEIVE = "receive"
    SCRATCH = "scratch"


@dataclass(frozen=True, slots=True)
class Span:
    """Elements ``start`` .. ``stop - 1`` of a buffer."""

    buffer: Buffer
    start: int
    stop: int

    def part(self, offset: int, length: int) -> "Span":
        """``length`` elements from ``offset`` on."""
        return Span(self.buffer, self.start + offset, self.start + offset + length)

    def __len__(self) -> int:
        return self.stop - self.start


class Message(NamedTuple):
    """What goes to, or comes from, one peer."""

    peer: int
    span: Span


class Transfer(NamedTuple):
    """Messages that are in flight together; between two ranks they match in the order given."""

    sends: tuple[Message, ...]
    receives: tuple[Message, ...]


class Reduce(NamedTuple):
    """``out = left op right``, elementwise."""

    left: Span
    right: Span
    out: Span


class Copy(NamedTuple):
    """``target = source``."""

    source: Span
    target: Span


Step = Transfer | Reduce | Copy


@dataclass(frozen=True)
class Program:
    """The steps of one rank.

    Attributes
    ----------
    steps : tuple of Transfer, Reduce or Copy
    scratch : int
        Elements of scratch memory that the steps use.
    """

    steps: tuple[Step, ...]
    scratch: int

    @property
    def transfers(self) -> list[Transfer]:
        """Only the communication."""
        return [step for step in self.steps if isinstance(step, Transfer)]

    @property
    def sent(self) -> int:
        """Elements that this rank sends."""
        return sum(len(message.span) for transfer in self.transfers for message in transfer.sends)

    @property
    def longest_reduction(self) -> int:
        """Elements of the largest single reduction."""
        return max((len(step.out) for step in self.steps if isinstance(step, Reduce)), default=0)


def lower(rounds: Sequence[Round], blocks: int, count: int, *, in_place: bool, segment: int, pack: int = 0) -> Program:
    """Turn the rounds of one rank into a program.

    Parameters
    ----------
    rounds : sequence of Round
        The schedule of this rank, block numbers within 0 .. blocks-1.
    blocks : int
        B, the number of blocks.
    count : int
        Elements in the buffer.
    in_place : bool
        The contribution is in the receive buffer already, and there is no send buffer.
    segment : int
        Largest message, in elements.  All ranks must use the same.
    pack : int
        Scattered blocks of up to this many elements together travel as one packed message.  All ranks must use the
        same.
    """
    lowering = _Lowering(blocks, count, in_place, segment, min(pack, segment))
    for exchanges in rounds:
        lowering.round(exchanges)
    lowering.finish()
    return Program(tuple(lowering.steps), lowering.scratch_peak)


class _Run(NamedTuple):
    """Neighbouring blocks, which are one range of elements."""

    blocks: tuple[int, ...]
    start: int
    stop: int


class _Arrival(NamedTuple):
    """A part of an incoming message, all of whose elements are treated alike."""

    offset: int  # in the message
    mine: Span  # where the elements that it is combined with (or that it replaces) are now
    out: Span


@dataclass
class _Incoming:
    """A message to be received, and what is to be done with it."""

    peer: int
    landing: Span
    length: int
    action: Action
    arrivals: list[_Arrival]
    position: int = 0  # of its exchange in the round
    joins: "_Incoming | None" = None  # what is to its left, and gets combined with it before anything else

    def message(self, first: int, length: int) -> Message:
        """Elements ``first`` .. ``first + length - 1``."""
        # Scratch is as long as one segment, and used again for each; other landings are as long as the message.
        return Message(self.peer, self.landing.part(0 if self.landing.buffer is Buffer.SCRATCH else first, length))

    def steps(self, first: int, length: int) -> list[Step]:
        """What is done with elements ``first`` .. ``first + length - 1`` when they are there."""
        landed = self.message(first, length).span
        if self.joins is not None:
            left = self.joins.message(first, length).span
            return [Reduce(left, landed, left)]
        steps: list[Step] = []
        for arrival in self.arrivals:
            low = max(arrival.offset, first)
            size = min(arrival.offset + len(arrival.out), first + length) - low
            if size <= 0:
                continue
            received = landed.part(low - first, size)
            mine, out = (span.part(low - arrival.offset, size) for span in (arrival.mine, arrival.out))
            if self.action is COPY:
                steps.append(Copy(received, out))
            elif self.action is REDUCE_LEFT:
                steps.append(Reduce(received, mine, out))
            else:
                steps.append(Reduce(mine, received, out))
        return steps


class _Lowering:
    def __init__(self, blocks: int, count: int, in_place: bool, segment: int, pack: int):
        self.offsets = [block_offset(block, blocks, count) for block in range(blocks + 1)]
        self.untouched = set() if in_place else set(range(blocks))  # blocks whose value is still in the send buffer
        self.segment = segment
        self.pack = pack
        self.steps: list[Step] = []
        self.scratch_used = 0  # by the round at hand
        self.scratch_peak = 0

    def round(self, exchanges: Round) -> None:
        self.scratch_used = 0
        outgoing = [m for e in exchanges if e.dst is not None for m in self._outgoing(e.dst, e.sent)]
        incoming = self._all_incoming(exchanges)
        in_order = sorted(incoming, key=lambda m: m.position)  # as the peers send
        joins_first = sorted(incoming, key=lambda m: m.joins is None)
        longest = max([len(m.span) for m in outgoing] + [m.length for m in incoming], default=0)
        for first in range(0, longest, self.segment):
            sends = tuple(
                Message(peer, span.part(first, min(self.segment, len(span) - first)))
                for peer, span in outgoing
                if first < len(span)
            )
            receives = tuple(
                m.message(first, min(self.segment, m.length - first)) for m in in_order if first < m.length
            )
            self.steps.append(Transfer(sends, receives))
            for m in joins_first:
                if first < m.length:
                    self.steps.extend(m.steps(first, min(self.segment, m.length - first)))

    def finish(self) -> None:
        """Blocks that were never written (there is but one rank) are copied."""
        for run in self._runs(sorted(self.untouched)):
            self.steps.append(Copy(Span(Buffer.SEND, run.start, run.stop), Span(Buffer.RECEIVE, run.start, run.stop)))

    def _runs(self, blocks: Sequence[int]) -> list[_Run]:
        """Non-empty blocks, neighbours joined.  Sender and receiver see the same blocks, hence the same runs."""
        runs: list[_Run] = []
        for block in blocks:
            start, stop = self.offsets[block], self.offsets[block + 1]
            if start == stop:
                continue
            if runs and runs[-1].stop == start:
                runs[-1] = _Run((*runs[-1].blocks, block), runs[-1].start, stop)
            else:
                runs.append(_Run((block,), start, stop))
        return runs

    def _homes(self, run: _Run) -> Iterator[tuple[bool, Span]]:
        """The parts of a run by where their values are: in the send buffer (True), or the receive buffer."""
        for fresh, group in groupby(run.blocks, key=self.untouched.__contains__):
            members = list(group)
            buffer = Buffer.SEND if fresh else Buffer.RECEIVE
            yield fresh, Span(buffer, self.offsets[members[0]], self.offsets[members[-1] + 1])

    def _is_packed(self, runs: list[_Run]) -> bool:
        return len(runs) > 1 and sum(run.stop - run.start for run in runs) <= self.pack

    def _allocate(self, length: int) -> Span:
        span = Span(Buffer.SCRATCH, self.scratch_used, self.scratch_used + length)
        self.scratch_used += length
        self.scratch_peak = max(self.scratch_peak, self.scratch_used)
        return span

    def _outgoing(self, dst: int, blocks: Sequence[int]) -> list[Message]:
        runs = self._runs(blocks)
        if not self._is_packed(runs):
            return [Message(dst, self._in_one_place(run)) for run in runs]
        packed = self._allocate(sum(run.stop - run.start for run in runs))
        offset = 0
        for run in runs:
            for _, span in self._homes(run):
                self.steps.append(Copy(span, packed.part(offset, len(span))))
                offset += len(span)
        return [Message(dst, packed)]

    def _in_one_place(self, run: _Run) -> Span:
        """A run as one span: where its values are in two buffers, those in the send buffer are copied over first."""
        homes = list(self._homes(run))
        if len(homes) == 1:
            return homes[0][1]
        for fresh, span in homes:
            if fresh:
                self.steps.append(Copy(span, Span(Buffer.RECEIVE, span.start, span.stop)))
        self.untouched.difference_update(run.blocks)
        return Span(Buffer.RECEIVE, run.start, run.stop)

    def _all_incoming(self, exchanges: Round) -> list[_Incoming]:
        """Operands of one block stand from left to right: REDUCE_LEFT's as listed, mine, then REDUCE_RIGHT's."""
        incoming: list[_Incoming] = []
        leftmost: dict[Sequence[int], list[_Incoming]] = {}
        receiving = [(i, e) for i, e in enumerate(exchanges) if e.src is not None]
        for position, e in sorted(receiving, key=lambda item: item[1].action is not REDUCE_LEFT):
            first = leftmost.get(e.received) if e.action is REDUCE_LEFT else None
            if first is None:
                messages = self._incoming(e.src, e.received, e.action)
                if e.action is REDUCE_LEFT:
                    leftmost[e.received] = messages
            else:
                messages = [self._joining(e.src, m) for m in first]
            for message in messages:
                message.position = position
            incoming += messages
        return incoming

    def _joining(self, src: int, left: _Incoming) -> _Incoming:
        landing = self._allocate(min(left.length, self.segment))
        return _Incoming(src, landing, left.length, left.action, [], joins=left)

    def _incoming(self, src: int, blocks: Sequence[int], action: Action) -> list[_Incoming]:
        runs = self._runs(blocks)
        if self._is_packed(runs):
            length = sum(run.stop - run.start for run in runs)
            messages = [_Incoming(src, self._allocate(length), length, action, self._arrivals(runs))]
        else:
            messages = [self._incoming_run(src, run, action) for run in runs]
        self.untouched.difference_update(blocks)
        return messages

    def _incoming_run(self, src: int, run: _Run, action: Action) -> _Incoming:
        length = run.stop - run.start
        target = Span(Buffer.RECEIVE, run.start, run.stop)
        if action is COPY:
            return _Incoming(src, target, length, action, [])
        if self.untouched.issuperset(run.blocks):
            landing = target
        else:
            landing = self._allocate(min(length, self.segment))
        return _Incoming(src, landing, length, action, self._arrivals([run]))

    def _arrivals(self, runs: list[_Run]) -> list[_Arrival]:
        arrivals = []
        offset = 0
        for run in runs:
            for _, mine in self._homes(run):
                arrivals.append(_Arrival(offset, mine, Span(Buffer.RECEIVE, mine.start, mine.stop)))
                offset += len(mine)
        return arrivals
