"""Schedules with clocks instead of numbers: how long would they take on thousands of ranks?

Every rank walks through its rounds.  A message begins when its sender, and if it is a large one also its receiver, has
come to its round; a rank goes on when all messages of the round are over, and what arrived is reduced.

Messages that begin in the same **wave** share links: a wave is all messages for which both sides have become ready
since the wave before.  In schedules whose ranks go in step that is a round of all ranks.  A link gives each message its
share by bytes: a message takes as long as the busiest link on its way needs for all that this wave sends through it.
That overestimates sharing where the messages of a wave begin at different times, and misses it between waves.
"""

from collections import defaultdict, deque
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..algorithms import COPY, Algorithm, block_offset
from .machine import Machine
from .topology import Topology

__all__ = ["Simulated", "simulate"]


@dataclass(frozen=True)
class Simulated:
    """What one allreduce came to.

    Attributes
    ----------
    seconds : float
        Until the last rank is done.
    messages : int
        Between ranks.
    sent_bytes : ndarray, shape (ranks,)
    link_bytes : ndarray, shape (links,)
        Through each link of the topology.
    level_bytes : dict of str to float
        Through all links of each level; ``inside nodes`` is what no link carries.
    busiest : float
        Bytes through the link that is busiest for its capacity, divided by that.
    """

    seconds: float
    messages: int
    sent_bytes: np.ndarray
    link_bytes: np.ndarray
    level_bytes: dict[str, float]
    busiest: float


def simulate(
    algorithm: Algorithm, size: int, nbytes: int, machine: Machine, network: Topology, per_node: int = 1
) -> Simulated:
    """Run one schedule on one network.

    Parameters
    ----------
    algorithm : Algorithm
    size : int
        Ranks.
    nbytes : int
        Of the buffer.
    machine : Machine
    network : Topology
        With at least size / per_node nodes.
    per_node : int
        Neighbouring ranks share a node.

    Notes
    -----
    Takes a few microseconds for each message, and memory in proportion to the ranks.

    Examples
    --------
    >>> from mpi_allreduce.algorithms import get
    >>> from mpi_allreduce.simulate import Flat, Machine, simulate
    >>> one_byte_a_second = Machine(alpha=0, beta=1, gamma=0)
    >>> simulate(get("ring"), 4, 8, one_byte_a_second, Flat(4)).seconds
    12.0
    """
    walk = _Walk(algorithm, size, nbytes, machine)
    sharing = _Sharing(machine, network, per_node)
    waiting = range(size)
    while waiting:
        messages = walk.enter(waiting)
        waiting = walk.finish(messages, sharing.seconds(messages))
    if walk.unfinished():
        raise RuntimeError(f"{algorithm.name} on {size} ranks: ranks {walk.unfinished()[:8]} wait for ever")
    return sharing.result(walk)


class _Walk:
    """Where all ranks are."""

    def __init__(self, algorithm: Algorithm, size: int, nbytes: int, machine: Machine):
        blocks = algorithm.blocks(size)
        edges = [block_offset(block, blocks, nbytes) for block in range(blocks + 1)]
        self._bytes = [stop - start for start, stop in pairwise(edges)]
        self._rounds = [algorithm.rounds(rank, size) for rank in range(size)]
        self._eager, self._gamma = machine.eager_bytes, machine.gamma
        self._sends: dict[tuple[int, int], deque] = defaultdict(deque)
        self._receives: dict[tuple[int, int], deque] = defaultdict(deque)
        self.clock = [0.0] * size
        self._pending = [0] * size  # messages of the round that are not over
        self._end = [0.0] * size
        self._reduces = [0] * size
        self._done = [False] * size
        self.sent = np.zeros(size)
        self.messages = 0

    def enter(self, ranks) -> list[tuple]:
        """Let ranks begin their next rounds; (source, target, bytes, begin, is it reduced) of what can be sent now."""
        ready: list[tuple] = []
        for rank in ranks:
            self._enter(rank, ready)
        return ready

    def _enter(self, rank: int, ready: list[tuple]) -> None:
        now = self.clock[rank]
        while not self._pending[rank]:
            exchanges = next(self._rounds[rank], None)
            if exchanges is None:
                self._done[rank] = True
                return
            self._end[rank], self._reduces[rank] = now, 0
            for exchange in exchanges:
                if exchange.dst is not None and (nbytes := self._size(exchange.sent)):
                    self._pending[rank] += 1
                    self._post(self._sends, self._receives, (rank, exchange.dst), (now, nbytes, False), ready)
                if exchange.src is not None and (nbytes := self._size(exchange.received)):
                    self._pending[rank] += 1
                    self._reduces[rank] += nbytes if exchange.action is not COPY else 0
                    self._post(self._receives, self._sends, (exchange.src, rank), (now, nbytes, True), ready)

    def _post(self, mine: dict, others: dict, pair: tuple[int, int], posted: tuple, ready: list[tuple]) -> None:
        if not others[pair]:
            mine[pair].append(posted)
            return
        partner = others[pair].popleft()
        sender, receiver = (partner, posted) if posted[2] else (posted, partner)
        ready.append((*pair, posted[1], sender[0], receiver[0]))

    def _size(self, blocks) -> int:
        of_block, number = self._bytes, len(self._bytes)
        return sum(of_block[block % number] for block in blocks)

    def finish(self, messages: list[tuple], seconds: np.ndarray) -> list[int]:
        """Messages end; the ranks that have nothing left to wait for in their round."""
        free = []
        self.messages += len(messages)
        for (source, target, nbytes, sent_at, received_at), takes in zip(messages, seconds.tolist(), strict=True):
            begin = sent_at if nbytes <= self._eager else max(sent_at, received_at)
            end = max(begin + takes, received_at)
            self.sent[source] += nbytes
            for rank in (source, target):
                if end > self._end[rank]:
                    self._end[rank] = end
                self._pending[rank] -= 1
                if not self._pending[rank]:
                    self.clock[rank] = self._end[rank] + self._reduces[rank] * self._gamma
                    free.append(rank)
        return free

    def unfinished(self) -> list[int]:
        return [rank for rank, done in enumerate(self._done) if not done]


class _Sharing:
    """How long messages take that begin together, and what went through which link."""

    def __init__(self, machine: Machine, network: Topology, per_node: int):
        self._machine, self._network, self._per_node = machine, network, per_node
        self._link_bytes = np.zeros(len(network.capacity))
        self._inside = 0.0

    def seconds(self, messages: list[tuple]) -> np.ndarray:
        """Of each message."""
        if not messages:
            return np.empty(0)
        table = np.array([message[:3] for message in messages], np.int64)
        source, target, nbytes = table[:, 0] // self._per_node, table[:, 1] // self._per_node, table[:, 2]
        inside = source == target
        m = self._machine
        takes = np.where(inside, m.local_alpha + nbytes * m.local_beta, 0.0)
        self._inside += float(nbytes[inside].sum())
        if not inside.all():
            out = ~inside
            routes = self._network.routes(source[out], target[out])
            takes[out] = m.alpha + m.beta * self._busiest_on_the_way(routes, nbytes[out])
        return takes

    def _busiest_on_the_way(self, routes: np.ndarray, nbytes: np.ndarray) -> np.ndarray:
        """In bytes through a node's link."""
        taken = routes >= 0
        weights = np.broadcast_to(nbytes[:, None], routes.shape)[taken]
        load = np.bincount(routes[taken], weights, minlength=self._link_bytes.size)
        self._link_bytes += load
        relative = np.append(load / self._network.capacity, 0.0)  # the last is what a route's padding points to
        return relative[routes].max(axis=1)

    def result(self, walk: _Walk) -> Simulated:
        network = self._network
        levels = np.bincount(network.level, self._link_bytes, minlength=len(network.levels))
        return Simulated(
            seconds=max(walk.clock), messages=walk.messages, sent_bytes=walk.sent, link_bytes=self._link_bytes,
            level_bytes={"inside nodes": self._inside, **dict(zip(network.levels, levels.tolist(), strict=True))},
            busiest=float((self._link_bytes / network.capacity).max(initial=0.0)),
        )  # fmt: skip
