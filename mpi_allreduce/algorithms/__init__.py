"""Allreduce algorithms as schedules of Sendrecv rounds; pure Python, no MPI, no arrays.

To add one, write a generator in a file of its own, decorate it with :func:`algorithm`, and import the file below:
the verifier, the plans, the benchmark, the tests and the command line find it in the registry.
"""

from . import (  # the order of import is the order of every table
    linear,
    binomial_tree,
    knomial_tree,
    recursive_doubling,
    recursive_multiplying,
    rabenseifner,
    swing,
    ring,
    segmented_ring,
    circulant,
    pairwise,
    pipelined_chain,
    pipelined_binary_tree,
    double_binary_tree,
    dual_root,
)
from .cost import Cost, Formula
from .parameters import Parameter
from .registry import Algorithm, algorithm, fitted, get, names, one_block, per_rank, per_segment, unknown
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
    "COPY", "REDUCE", "REDUCE_LEFT", "REDUCE_RIGHT", "Action", "Algorithm", "Cost", "Exchange", "Formula", "Parameter",
    "Round", "algorithm", "block_offset", "fitted", "get", "names", "one_block", "per_rank", "per_segment", "receive",
    "reduce_from", "send", "sendrecv", "unknown",
]  # fmt: skip
