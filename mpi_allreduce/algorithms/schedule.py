"""The vocabulary in which every allreduce algorithm is written.

A buffer of ``count`` elements is cut into ``B`` balanced **blocks**, numbered 0 .. B-1.  An algorithm is a
generator ``(rank, size)`` that yields **rounds**; a round is one :class:`Exchange` (nearly always), or a tuple of
exchanges that are in flight together.  Nothing here knows MPI or an array library: running, proving and timing a
schedule are the work of its interpreters.

Rules that every schedule keeps, and that :mod:`mpi_allreduce.simulate` proves:

* between two ranks, the k-th send carries the same blocks, in the same order, as the k-th receive expects;
* in one round the blocks sent and the blocks received are disjoint, or (a butterfly) the same and reduced.

If several exchanges of a round reduce into the same blocks, operands are combined from left to right: what arrived with
REDUCE_LEFT in the order of the exchanges, then mine, then what arrived with REDUCE_RIGHT.  Those with REDUCE_LEFT name
the same blocks, or disjoint ones.

The second rule lets an executor cut a round into pieces and reduce one piece before it sends the next.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

__all__ = [
    "COPY",
    "REDUCE",
    "REDUCE_LEFT",
    "REDUCE_RIGHT",
    "Action",
    "Exchange",
    "Round",
    "block_offset",
    "receive",
    "reduce_from",
    "send",
    "sendrecv",
]


class Action(Enum):
    """What is done with the blocks that arrive."""

    COPY = "mine = received"
    REDUCE_LEFT = "mine = received op mine"
    REDUCE_RIGHT = "mine = mine op received"


COPY, REDUCE_LEFT, REDUCE_RIGHT = Action
REDUCE = REDUCE_RIGHT  # for algorithms that reorder operands anyway


@dataclass(frozen=True, slots=True)
class Exchange:
    """One Sendrecv: send some blocks to ``dst`` while others arrive from ``src``.

    Attributes
    ----------
    dst, src : int or None
        Peers; None where the exchange only receives, or only sends.
    sent, received : tuple of int
        Block numbers, in the order in which they travel.
    action : Action
        What happens to ``received``.
    """

    dst: int | None
    sent: tuple[int, ...]
    src: int | None
    received: tuple[int, ...]
    action: Action

    def modulo(self, blocks: int) -> "Exchange":
        """The same exchange with every block number reduced modulo ``blocks``."""
        return Exchange(
            self.dst,
            tuple(b % blocks for b in self.sent),
            self.src,
            tuple(b % blocks for b in self.received),
            self.action,
        )


Round = tuple[Exchange, ...]
Blocks = int | Iterable[int]


def sendrecv(dst: int, sent: Blocks, src: int, received: Blocks, action: Action) -> Exchange:
    """Send blocks ``sent`` to ``dst`` and apply ``action`` to blocks ``received`` from ``src``."""
    return Exchange(dst, _blocks(sent), src, _blocks(received), action)


def send(dst: int, sent: Blocks) -> Exchange:
    """Only send."""
    return Exchange(dst, _blocks(sent), None, (), COPY)


def receive(src: int, received: Blocks, action: Action) -> Exchange:
    """Only receive."""
    return Exchange(None, (), src, _blocks(received), action)


def reduce_from(peer: int, rank: int) -> Action:
    """The reduction that keeps operands in rank order when ``peer`` holds a neighbouring range of ranks."""
    return REDUCE_LEFT if peer < rank else REDUCE_RIGHT


def block_offset(block: int, blocks: int, count: int) -> int:
    """First element of ``block`` when ``count`` elements are cut into ``blocks``, balanced to within one element."""
    return block * count // blocks


def _blocks(blocks: Blocks) -> tuple[int, ...]:
    return (blocks,) if isinstance(blocks, int) else tuple(blocks)
