"""Schedules as GOAL text, which LogGOPSim and its relatives replay."""

from collections.abc import Iterator
from itertools import pairwise

from ..algorithms import COPY, Algorithm, block_offset

__all__ = ["goal"]


def goal(algorithm: Algorithm, size: int, nbytes: int, gamma: float = 0.0) -> Iterator[str]:
    """The lines of a GOAL file: every rank's sends, receives and reductions, each round depending on the one before.

    Parameters
    ----------
    algorithm : Algorithm
    size : int
        Ranks.
    nbytes : int
        Of the buffer.
    gamma : float
        Seconds to reduce a byte, written as ``calc`` in nanoseconds; none are written if it is 0.

    Notes
    -----
    Source: T. Hoefler, T. Schneider, A. Lumsdaine: LogGOPSim, HPDC workshops 2010.
    """
    blocks = algorithm.blocks(size)
    edges = [block_offset(block, blocks, nbytes) for block in range(blocks + 1)]
    sizes = [stop - start for start, stop in pairwise(edges)]
    yield f"num_ranks {size}"
    for rank in range(size):
        yield ""
        yield f"rank {rank} {{"
        yield from _rank(algorithm.schedule(rank, size), sizes, gamma)
        yield "}"


def _rank(rounds, sizes: list[int], gamma: float) -> Iterator[str]:
    number = 0
    before: list[str] = []
    for exchanges in rounds:
        made, reduced = [], 0
        for exchange in exchanges:
            for peer, moved, text in (
                (exchange.dst, exchange.sent, "send {}b to {} tag 0"),
                (exchange.src, exchange.received, "recv {}b from {} tag 0"),
            ):
                nbytes = 0 if peer is None else sum(sizes[block] for block in moved)
                if nbytes:
                    number += 1
                    made.append(f"l{number}")
                    yield f"l{number}: {text.format(nbytes, peer)}"
            if exchange.src is not None and exchange.action is not COPY:
                reduced += sum(sizes[block] for block in exchange.received)
        yield from (f"{label} requires {earlier}" for label in made for earlier in before)
        before = made or before
        nanoseconds = round(reduced * gamma * 1e9)
        if nanoseconds:
            number += 1
            yield f"l{number}: calc {nanoseconds}"
            yield from (f"l{number} requires {earlier}" for earlier in before)
            before = [f"l{number}"]
