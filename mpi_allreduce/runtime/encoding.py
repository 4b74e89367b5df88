"""A schedule lowered for a codec: which blocks are encoded when, what travels, and what is done with what arrives.

This is pure, as :mod:`.program` is for numbers that travel as they are.  Each block has a place on the **wire image**,
a memory of the size of the encoded buffer.  What makes all ranks end with the same bits:

* A block is encoded when it is first sent.  From then on its value is what its packet decodes to, on the sender too;
  so both sides of a butterfly add Q(a) + Q(b).
* A block that arrives to be copied lands in the wire image, and is forwarded from there as it came.
* If finished blocks travel at all, a rank that neither sent nor was sent one encodes and decodes it all the same.

Decoding is put off until the rank waits for the next messages; a block that is overwritten before is never decoded.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from ..algorithms import COPY, REDUCE_LEFT, Algorithm, Exchange, Round

__all__ = [
    "Combine",
    "Encode",
    "Encoding",
    "EncodedRound",
    "Home",
    "Landed",
    "Parcel",
    "finished_blocks_travel",
    "lower",
]


class Home(Enum):
    """Where the numbers of a block are."""

    SOURCE = "this rank's contribution"
    RECEIVE = "the receive buffer"
    WIRE = "what its packet decodes to"


class Landed(NamedTuple):
    """A packet that came to be added, at this byte of the landing memory."""

    start: int


class Parcel(NamedTuple):
    """Packets that travel as one message.

    ``blocks`` are given where their sizes vary: then there is just one, and ``nbytes`` is the most that it may be.
    """

    peer: int
    landing: bool  # in the landing memory, else in the wire image
    start: int
    nbytes: int
    block: int | None


class Encode(NamedTuple):
    """Write a block's packet into the wire image.

    ``holders`` ranks hold and encode the same bits; ``first``: this rank has not encoded the block before; ``last``:
    it will not be told a newer value of it, so this is the result.
    """

    block: int
    home: Home
    holders: int
    first: bool
    last: bool


class Combine(NamedTuple):
    """Add operands from left to right into the receive buffer."""

    block: int
    operands: tuple[Home | Landed, ...]


@dataclass
class EncodedRound:
    """One round: encode, start messages, decode meanwhile, wait, combine."""

    encodes: list[Encode] = field(default_factory=list)
    sends: list[Parcel] = field(default_factory=list)
    receives: list[Parcel] = field(default_factory=list)
    decodes: list[int] = field(default_factory=list)
    combines: list[Combine] = field(default_factory=list)


@dataclass(frozen=True)
class Encoding:
    """The work of one rank.

    Attributes
    ----------
    rounds : list of EncodedRound
        The last one communicates nothing.
    untouched : list of int
        Blocks whose result is the contribution (there is but one rank).
    unsent : list of int
        Blocks of which this rank's contribution was used but never encoded.
    offsets : list of int
        First byte of each block in the wire image, and its end.
    landing : int
        Bytes of landing memory.
    """

    rounds: list[EncodedRound]
    untouched: list[int]
    unsent: list[int]
    offsets: list[int]
    landing: int


def lower(rounds: Sequence[Round], sizes: Sequence[int], *, fixed: bool, travels: bool, segment: int) -> Encoding:
    """Lower the rounds of one rank.

    Parameters
    ----------
    rounds : sequence of Round
        Block numbers within 0 .. len(sizes) - 1.
    sizes : sequence of int
        Bytes of each block's packet (``fixed``), or at most so many; 0 if it is empty.
    travels : bool
        See :func:`finished_blocks_travel`.
    segment : int
        Messages of packets of fixed size are cut into so many bytes.
    """
    lowering = _Lowering(rounds, sizes, fixed, segment)
    for number, exchanges in enumerate(rounds):
        lowering.round(number, exchanges)
    return lowering.finish(travels)


@lru_cache(maxsize=256)
def finished_blocks_travel(algorithm: Algorithm, size: int) -> bool:
    """Whether any rank is sent a finished block, so that all have to hold what a packet decodes to."""
    return any(
        exchange.action is COPY and exchange.src is not None
        for rank in range(size)
        for exchanges in algorithm.schedule(rank, size)
        for exchange in exchanges
    )


class _Lowering:
    def __init__(self, rounds: Sequence[Round], sizes: Sequence[int], fixed: bool, segment: int):
        self.sizes = sizes
        self.fixed = fixed
        self.segment = segment
        self.offsets = [0, *accumulate(sizes)]
        blocks = range(len(sizes))
        self.home = [Home.SOURCE for _ in blocks]
        self.valid = [False for _ in blocks]  # whether the packet in the wire image is that of the present value
        self.holders = [1 for _ in blocks]
        self.sent_before = [False for _ in blocks]
        self.last_arrival = {b: i for i, r in enumerate(rounds) for e in r if e.src is not None for b in e.received}
        self.decoded = [False for _ in blocks]  # whether the receive buffer holds, or soon will, the packet's value
        self.waiting: list[int] = []  # packets to be decoded when there is time
        self.rounds: list[EncodedRound] = []
        self.landing = 0

    def round(self, number: int, exchanges: Round) -> None:
        made = EncodedRound(decodes=self.waiting)
        self.waiting = []
        for exchange in exchanges:
            if exchange.dst is not None:
                self._send(made, exchange, number)
        landed = self._receive(made, exchanges)
        sent = {b for e in exchanges if e.dst is not None for b in e.sent}
        for block, (left, right) in landed.items():
            if block in sent:
                self.holders[block] *= 1 + len(left) + len(right)
            made.combines.append(Combine(block, (*left, self.home[block], *right)))
            self.home[block], self.valid[block], self.decoded[block] = Home.RECEIVE, False, False
        self.rounds.append(made)

    def finish(self, travels: bool) -> Encoding:
        made = EncodedRound(decodes=self.waiting)
        present = [b for b, size in enumerate(self.sizes) if size]
        untouched = []
        for block in present:
            if self.home[block] is not Home.WIRE and travels:
                self._encode(made, block, len(self.rounds))
            if self.home[block] is Home.WIRE and not self.decoded[block]:
                made.decodes.append(block)
            if self.home[block] is Home.SOURCE:
                untouched.append(block)
        self.rounds.append(made)
        unsent = [b for b in present if not self.sent_before[b]]
        return Encoding(self.rounds, untouched, unsent, self.offsets, self.landing)

    def _encode(self, made: EncodedRound, block: int, number: int) -> None:
        last = self.last_arrival.get(block, -1) < number
        made.encodes.append(Encode(block, self.home[block], self.holders[block], not self.sent_before[block], last))
        self.home[block], self.valid[block], self.sent_before[block] = Home.WIRE, True, True
        self.decoded[block] = False

    def _send(self, made: EncodedRound, exchange: Exchange, number: int) -> None:
        for block in exchange.sent:
            if self.sizes[block] and not self.valid[block]:
                self._encode(made, block, number)
        made.sends += self._parcels(exchange.dst, exchange.sent)

    def _receive(self, made: EncodedRound, exchanges: Round) -> dict[int, tuple[list[Landed], list[Landed]]]:
        """Post what arrives; by block, the packets that stand to the left and to the right of this rank's value."""
        landed: dict[int, tuple[list[Landed], list[Landed]]] = defaultdict(lambda: ([], []))
        used = 0
        for exchange in exchanges:
            if exchange.src is None:
                continue
            present = [block for block in exchange.received if self.sizes[block]]
            if exchange.action is COPY:
                made.receives += self._parcels(exchange.src, present)
                for block in present:
                    self.home[block], self.valid[block], self.decoded[block] = Home.WIRE, True, True
                    self.waiting.append(block)
                continue
            made.receives += self._parcels(exchange.src, present, used)
            for block in present:
                landed[block][exchange.action is not REDUCE_LEFT].append(Landed(used))
                used += self.sizes[block]
        self.landing = max(self.landing, used)
        return landed

    def _parcels(self, peer: int, blocks: Sequence[int], landing: int | None = None) -> list[Parcel]:
        """Packets as messages: neighbours in memory together, as both sides see the same blocks in the same order."""
        runs: list[list[int]] = []
        for block in blocks:
            if not self.sizes[block]:
                continue
            if self.fixed and runs and runs[-1][-1] in self._before(block):
                runs[-1].append(block)
            else:
                runs.append([block])
        parcels = []
        for run in runs:
            nbytes = sum(self.sizes[block] for block in run)
            start = self.offsets[run[0]] if landing is None else landing
            landing = None if landing is None else landing + nbytes
            for first in range(0, nbytes, self.segment if self.fixed else nbytes):
                length = min(self.segment, nbytes - first) if self.fixed else nbytes
                parcels.append(Parcel(peer, landing is not None, start + first, length, None if self.fixed else run[0]))
        return parcels

    def _before(self, block: int) -> set[int]:
        """The block before this one in the wire image, empty ones not counted."""
        before = block - 1
        while before >= 0 and not self.sizes[before]:
            before -= 1
        return {before}
