"""Allreduce algorithms as schedules of Sendrecv rounds; pure Python, no MPI, no arrays.

To add one, write a generator in a file of its own, decorate it with :func:`algorithm`, and import the file below:
the verifier, the plans, the benchmark, the tests and the command line find it in the registry.
"""

from . import (  # the order of import is the order of every table
    linear,
    binomial_tree,
    recursive_doubling,
    rabenseifner,
    ring,
    circulant,
    pairwise,
)
from .registry import Algorithm, Cost, Formula, algorithm, get, names, one_block, per_rank, unknown
from .schedule import (
    COPY,
    REDUCE,
    REDUCE_LEFT,
    REDUCE_RIGHT,
    Action,
    Exchange,
    Round,
    block_offset,
    receive,
    reduce_from,
    send,
    sendrecv,
)

__all__ = [
    "COPY", "REDUCE", "REDUCE_LEFT", "REDUCE_RIGHT", "Action", "Algorithm", "Cost", "Exchange", "Formula", "Round",
    "algorithm", "block_offset", "get", "names", "one_block", "per_rank", "receive", "reduce_from", "send",
    "sendrecv", "unknown",
]  # fmt: skip
