"""Proof of a schedule: all ranks are run in lock step on symbols instead of numbers.

Each block of each rank holds an expression tree over the contributions 0 .. p-1.  For one algorithm and one number of
ranks, :func:`verify` shows (the first word of each is the ``property`` of the error raised otherwise):

matching
    Between every two ranks, the k-th send carries exactly the blocks that the k-th receive expects.
overwrite
    No block is overwritten while it is being sent: the blocks sent and received in one round are disjoint, or a
    butterfly's (the same blocks, reduced).  This also makes it safe to cut rounds into pieces.
deadlock
    All rounds complete although every send is synchronous (rendezvous) and a round ends only together with all the
    rounds that it is matched with.  That is stricter than Sendrecv, and holds for any cutting of rounds into pieces.
once
    Every contribution is in every block of every rank exactly once.
same bits
    All ranks hold the same tree, operand for operand, so the same bits whatever the rounding.
order
    Where the algorithm claims it: the operands of the tree stand in rank order.
same bits, encoded
    The same if blocks travel encoded: a block is encoded when it is first sent, its sender goes on with the decoded
    value, and what arrives to be copied is forwarded as it came (see :mod:`mpi_allreduce.runtime.encoding`).
cost
    Dependent rounds, bytes sent and bytes reduced by the busiest rank equal the algorithm's formulas.
"""

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction

from ..algorithms import COPY, REDUCE_LEFT, REDUCE_RIGHT, Algorithm, Round

__all__ = ["Proof", "ScheduleError", "verify"]


class ScheduleError(AssertionError):
    """A schedule broke a property.

    Attributes
    ----------
    property : str
        One of those listed in :mod:`mpi_allreduce.simulate.verifier`.
    """

    def __init__(self, property: str, message: str):
        super().__init__(f"{property}: {message}")
        self.property = property


@dataclass(frozen=True)
class Proof:
    """What was measured while an algorithm was proved at one size.

    Attributes
    ----------
    size : int
        Ranks.
    rounds : int
        Dependent rounds on the longest chain.
    sent : tuple of Fraction
        What each rank sends, as a multiple of the buffer.
    reduced : tuple of Fraction
        What each rank reduces, as a multiple of the buffer.
    depth : int
        With a codec: how often a contribution is encoded on its way into a result, at most.
    encodings : int
        With a codec: how many encodings the result of a block is made of, at most.
    """

    size: int
    rounds: int
    sent: tuple[Fraction, ...]
    reduced: tuple[Fraction, ...]
    depth: int
    encodings: int

    @property
    def sent_mean(self) -> Fraction:
        """Mean over ranks."""
        return sum(self.sent, Fraction(0)) / self.size

    @property
    def sent_max(self) -> Fraction:
        """What the busiest rank sends."""
        return max(self.sent)

    @property
    def reduced_max(self) -> Fraction:
        """What the busiest rank reduces."""
        return max(self.reduced)


def verify(algorithm: Algorithm, size: int) -> Proof:
    """Prove ``algorithm`` for ``size`` ranks.

    Parameters
    ----------
    algorithm : Algorithm
    size : int
        Number of ranks, at least 1.

    Returns
    -------
    Proof

    Raises
    ------
    ScheduleError
        Naming the property that does not hold, and where.

    Notes
    -----
    Takes time in proportion to the block transfers of all ranks: p^2 for a ring.
    """
    schedules = [algorithm.schedule(rank, size) for rank in range(size)]
    origins = _match(schedules)
    _check_overwrites(schedules)
    state = _Symbols(size, algorithm.blocks(size))
    rounds = _walk(schedules, origins, state)
    state.check_result(ordered=algorithm.ordered)
    encoded = _EncodedSymbols(size, algorithm.blocks(size))
    _walk(schedules, origins, encoded)
    encoded.finish(travels=_finished_blocks_travel(schedules))
    encoded.check_result(ordered=False)
    proof = Proof(size, rounds, *_volumes(schedules, algorithm.blocks(size)), *encoded.depth_and_number())
    _check_cost(algorithm, proof)
    return proof


Node = tuple[int, int]  # (rank, index of the round in its schedule)


def _match(schedules: list[list[Round]]) -> dict[tuple[Node, int], Node]:
    """Pair sends with receives: (node, position of a receiving exchange in its round) -> the node that sends."""
    sends, receives = defaultdict(list), defaultdict(list)
    for rank, rounds in enumerate(schedules):
        for index, exchanges in enumerate(rounds):
            for position, exchange in enumerate(exchanges):
                for peer in (exchange.dst, exchange.src):
                    if peer is not None and (peer == rank or not 0 <= peer < len(schedules)):
                        raise ScheduleError("matching", f"rank {rank} round {index} names the peer {peer}")
                if exchange.dst is not None:
                    sends[rank, exchange.dst].append((exchange.sent, (rank, index)))
                if exchange.src is not None:
                    receives[exchange.src, rank].append((exchange.received, ((rank, index), position)))

    origins = {}
    for pair in sorted(sends.keys() | receives.keys()):
        between = f"from rank {pair[0]} to rank {pair[1]}"
        if len(sends[pair]) != len(receives[pair]):
            counts = f"{len(sends[pair])} messages are sent and {len(receives[pair])} received"
            raise ScheduleError("matching", f"{counts} {between}")
        for k, ((sent, sender), (expected, receiver)) in enumerate(zip(sends[pair], receives[pair], strict=True)):
            if sent != expected:
                raise ScheduleError("matching", f"message {k} {between} carries {sent}, but {expected} is expected")
            origins[receiver] = sender
    return origins


def _check_overwrites(schedules: list[list[Round]]) -> None:
    for rank, rounds in enumerate(schedules):
        for index, exchanges in enumerate(rounds):
            sent = {b for e in exchanges for b in e.sent}
            received = [(e.received, e.action) for e in exchanges if e.src is not None]
            copied = [b for blocks, action in received if action is COPY for b in blocks]
            touched = {b for blocks, _ in received for b in blocks}
            where = f"rank {rank} round {index}"
            if sent & set(copied) or len(copied) != len(set(copied)):
                raise ScheduleError("overwrite", f"{where} receives into blocks that are in flight: {copied}")
            if any(action is not COPY and set(copied) & set(blocks) for blocks, action in received):
                raise ScheduleError("overwrite", f"{where} copies into and reduces into the same block")
            lefts = [set(blocks) for blocks, action in received if action is REDUCE_LEFT]
            if any(one != other and one & other for one in lefts for other in lefts):
                raise ScheduleError("overwrite", f"{where} reduces from the left into blocks that overlap in part")
            butterfly = all(e.sent == e.received for e in exchanges)
            if sent & touched and not butterfly:
                raise ScheduleError("overwrite", f"{where} sends {sorted(sent)} while it reduces {sorted(touched)}")


class _Symbols:
    """The blocks of all ranks, as expression trees: equal trees are one and the same number."""

    same_bits = "same bits"

    def __init__(self, size: int, blocks: int):
        self.size = size
        self.held = [[rank] * blocks for rank in range(size)]  # tree r is the contribution of rank r
        self.contributors = [1 << rank for rank in range(size)]  # per tree, a bit for each contribution
        self.in_order = [True] * size
        self.known: dict[tuple[int, int], int] = {}

    def send(self, rank: int, block: int) -> int:
        """The tree that leaves a rank."""
        return self.held[rank][block]

    def receive(self, rank: int, arrivals, where: str) -> None:
        """One round's ``(blocks, trees, action)``: operands stand as REDUCE_LEFT's, mine, REDUCE_RIGHT's."""
        mine = self.held[rank]
        left: dict[int, int] = {}
        for block, tree in _each(arrivals, REDUCE_LEFT):
            left[block] = self.combine(left[block], tree, f"{where} block {block}") if block in left else tree
        for block, tree in left.items():
            mine[block] = self.combine(tree, mine[block], f"{where} block {block}")
        for block, tree in _each(arrivals, REDUCE_RIGHT):
            mine[block] = self.combine(mine[block], tree, f"{where} block {block}")
        for block, tree in _each(arrivals, COPY):
            mine[block] = tree

    def combine(self, left: int, right: int, where: str) -> int:
        if (left, right) not in self.known:
            a, b = self.contributors[left], self.contributors[right]
            if a & b:
                raise ScheduleError("once", f"{where} counts the contributions of ranks {_bits(a & b)} twice")
            self.known[left, right] = len(self.contributors)
            self.contributors.append(a | b)
            last_left, first_right = a.bit_length() - 1, (b & -b).bit_length() - 1
            self.in_order.append(self.in_order[left] and self.in_order[right] and last_left < first_right)
        return self.known[left, right]

    def check_result(self, *, ordered: bool) -> None:
        everyone = (1 << self.size) - 1
        for rank, trees in enumerate(self.held):
            for block, tree in enumerate(trees):
                missing = everyone & ~self.contributors[tree]
                if missing:
                    raise ScheduleError("once", f"rank {rank} block {block} lacks ranks {_bits(missing)}")
                if tree != self.held[0][block]:
                    raise ScheduleError(self.same_bits, f"ranks 0 and {rank} sum block {block} in different ways")
                if ordered and not self.in_order[tree]:
                    raise ScheduleError("order", f"rank {rank} block {block} combines operands out of rank order")


class _EncodedSymbols(_Symbols):
    """The same where blocks travel encoded, which is a node of the tree as well."""

    same_bits = "same bits, encoded"

    def __init__(self, size: int, blocks: int):
        super().__init__(size, blocks)
        self.valid = [[False] * blocks for _ in range(size)]  # whether the value is what a packet decodes to
        self.depth = [0] * size  # per tree
        self.number = [0] * size

    def send(self, rank: int, block: int) -> int:
        if not self.valid[rank][block]:
            self.valid[rank][block] = True
            self.held[rank][block] = self.encode(self.held[rank][block])
        return self.held[rank][block]

    def receive(self, rank: int, arrivals, where: str) -> None:
        for blocks, _, action in arrivals:
            for block in blocks:
                self.valid[rank][block] = action is COPY
        super().receive(rank, arrivals, where)

    def finish(self, *, travels: bool) -> None:
        """Where finished blocks travel, those that did not are encoded too."""
        for rank, trees in enumerate(self.held):
            for block in range(len(trees) if travels else 0):
                self.send(rank, block)

    def encode(self, tree: int) -> int:
        if (tree, -1) not in self.known:
            self.known[tree, -1] = len(self.contributors)
            self.contributors.append(self.contributors[tree])
            self.in_order.append(self.in_order[tree])
            self.depth.append(self.depth[tree] + 1)
            self.number.append(self.number[tree] + 1)
        return self.known[tree, -1]

    def combine(self, left: int, right: int, where: str) -> int:
        tree = super().combine(left, right, where)
        if tree == len(self.depth):
            self.depth.append(max(self.depth[left], self.depth[right]))
            self.number.append(self.number[left] + self.number[right])
        return tree

    def depth_and_number(self) -> tuple[int, int]:
        trees = set(self.held[0])
        return max(self.depth[tree] for tree in trees), max(self.number[tree] for tree in trees)


def _finished_blocks_travel(schedules: list[list[Round]]) -> bool:
    return any(
        e.action is COPY and e.src is not None for rounds in schedules for exchanges in rounds for e in exchanges
    )


def _walk(schedules, origins, state: _Symbols) -> int:
    """Complete groups of matched rounds as soon as all their ranks have come to them; the longest chain is returned."""
    groups = _groups(schedules, origins)
    group_of = {node: group for group in groups for node in group}
    missing = {group: len(group) for group in groups}
    clock = [0] * len(schedules)
    position = [0] * len(schedules)
    ready = []

    def arrive(rank: int) -> None:
        if position[rank] < len(schedules[rank]):
            group = group_of[rank, position[rank]]
            missing[group] -= 1
            if missing[group] == 0:
                ready.append(group)

    for rank in range(len(schedules)):
        arrive(rank)
    while ready:
        group = ready.pop()
        _deliver(group, schedules, origins, state)
        now = 1 + max(clock[rank] for rank, _ in group)
        for rank, index in group:
            clock[rank], position[rank] = now, index + 1
            arrive(rank)
    stuck = [f"rank {r} in round {position[r]}" for r, rounds in enumerate(schedules) if position[r] < len(rounds)]
    if stuck:
        raise ScheduleError("deadlock", f"these wait for each other: {', '.join(stuck)}")
    return max(clock)


def _groups(schedules, origins) -> list[tuple[Node, ...]]:
    """Rounds that must be in flight together: connected components under matching (union-find)."""
    parent = {(rank, index): (rank, index) for rank, rounds in enumerate(schedules) for index in range(len(rounds))}

    def root(node: Node) -> Node:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for (receiver, _), sender in origins.items():
        parent[root(receiver)] = root(sender)
    groups = defaultdict(list)
    for node in parent:
        groups[root(node)].append(node)
    return [tuple(nodes) for nodes in groups.values()]


def _deliver(group, schedules, origins, state: _Symbols) -> None:
    """All messages of a group are read before any of them is written, as they are in flight together."""
    arrivals = []
    for rank, index in group:
        arrived = []
        for position, exchange in enumerate(schedules[rank][index]):
            if exchange.src is not None:
                sender, _ = origins[(rank, index), position]
                trees = [state.send(sender, b) for b in exchange.received]
                arrived.append((exchange.received, trees, exchange.action))
        arrivals.append((rank, arrived, f"rank {rank} round {index}"))
    for rank, arrived, where in arrivals:
        state.receive(rank, arrived, where)


def _each(arrivals, action):
    """(block, tree) of all that arrived for one action."""
    return [pair for blocks, trees, a in arrivals if a is action for pair in zip(blocks, trees, strict=True)]


def _volumes(schedules, blocks: int) -> tuple[tuple[Fraction, ...], tuple[Fraction, ...]]:
    """What each rank sends and reduces, as multiples of the buffer."""
    sent = [sum(len(e.sent) for exchanges in rounds for e in exchanges) for rounds in schedules]
    reduced = [
        sum(len(e.received) for exchanges in rounds for e in exchanges if e.action is not COPY) for rounds in schedules
    ]
    return tuple(Fraction(s, blocks) for s in sent), tuple(Fraction(r, blocks) for r in reduced)


def _check_cost(algorithm: Algorithm, proof: Proof) -> None:
    cost = algorithm.cost
    for what, formula, measured in (
        ("rounds", cost.rounds, proof.rounds),
        ("buffers sent by the busiest rank", cost.sent, proof.sent_max),
        ("buffers reduced by the busiest rank", cost.reduced, proof.reduced_max),
    ):
        if not formula.holds(measured, proof.size, **algorithm.symbols):
            value = formula(proof.size, **algorithm.symbols)
            raise ScheduleError("cost", f"{what}: {measured}, but {formula} is {value} at p={proof.size}")


def _bits(mask: int) -> list[int]:
    return [i for i in range(mask.bit_length()) if mask >> i & 1]
