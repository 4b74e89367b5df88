"""What travels, predicted from a schedule alone; and how far a codec may take the result from the exact sum."""

import itertools
from functools import lru_cache
from math import inf

from ..algorithms import Algorithm, block_offset, fitted
from ..codecs import Bound, Codec, packet_bytes
from .verifier import verify

__all__ = ["result_bound", "wire_bytes"]

PROVED = 64  # ranks, up to which the schedule is walked for the number of encodings


def wire_bytes(
    algorithm: str, codec: Codec | None, rank: int, size: int, count: int, itemsize: int, channels: int = 1
) -> int:
    """Bytes that a rank sends in one allreduce; of codecs whose packets vary in size, at most.

    Parameters
    ----------
    algorithm : str
        Name of a schedule.
    codec : Codec or None
    rank, size : int
    count, itemsize : int
        Elements in the buffer, and bytes of each.
    channels : int
        Slices of the buffer.
    """
    bounds = [block_offset(i, channels, count) for i in range(channels + 1)]
    slices = [stop - start for start, stop in itertools.pairwise(bounds)]
    return sum(_of_slice(fitted(algorithm, size, n * itemsize), codec, rank, size, n, itemsize) for n in slices)


def _of_slice(algorithm: Algorithm, codec: Codec | None, rank: int, size: int, count: int, itemsize: int) -> int:
    blocks = algorithm.blocks(size)
    offsets = [block_offset(block, blocks, count) for block in range(blocks + 1)]
    lengths = [stop - start for start, stop in itertools.pairwise(offsets)]
    sizes = [packet_bytes(codec, n) if codec else n * itemsize for n in lengths]
    exchanges = (exchange for round_ in algorithm.schedule(rank, size) for exchange in round_)
    return sum(sizes[block] for exchange in exchanges if exchange.dst is not None for block in exchange.sent)


def result_bound(codec: Codec, algorithm: str, size: int) -> Bound:
    """A-priori bound of the error of an encoded sum of finite numbers that do not overflow.

    Each time that a partial sum is encoded, its error grows by at most the codec's relative bound eps of what it is the
    sum of; so with a depth of d encodings the error is at most ((1 + eps)^d - 1) times the sum of the contributions'
    norms.  An absolute bound counts once for each encoding, and so does the rounding of p - 1 additions in float32.

    Parameters
    ----------
    codec : Codec
    algorithm : str
        Name of a schedule.
    size : int
        Ranks.

    Returns
    -------
    Bound
        The L2 norm of the error is at most ``relative * sum(norms) + absolute * sqrt(count)``.
    """
    depth, encodings = _encodings(algorithm, size)
    once = codec.bound()
    if once.relative == inf:
        return once
    growth = (1 + once.relative) ** depth
    return Bound(growth - 1 + size * 2.0**-23 * growth, once.absolute * encodings * growth)


@lru_cache(maxsize=1024)
def _encodings(algorithm: str, size: int) -> tuple[int, int]:
    found = fitted(algorithm, size, 1 << 20)
    if size <= PROVED:
        proof = verify(found, size)
        return proof.depth, proof.encodings
    rounds = int(found.cost.rounds(size, **found.symbols)) + 1  # each round encodes a value once, at most
    return rounds, rounds * size
