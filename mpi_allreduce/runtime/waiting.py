"""What a rank does while nothing arrives: spin if it has a core of its own, give the core away if it shares one."""

import os
import time
from collections.abc import Callable

from mpi4py import MPI

__all__ = ["Patience", "is_crowded", "patience"]

VARIABLE = "MPI_ALLREDUCE_WAIT"
LOOKS = 50  # before yielding, where a rank should have a core of its own
YIELDS = 8  # before sleeping: a neighbour's round may be a few microseconds away
SLEEP = 20e-6  # seconds; the kernel adds about 50 of its own

Patience = Callable[[int], object]
"""``patience(n)`` is called after the n-th look in a row that found nothing (n = 1, 2, ...)."""


def spin(times: int) -> None:
    """Look again at once."""


def spin_first(times: int) -> None:
    """Look again at once, but not for long.

    Who else needs the core cannot be known: another job, the kernel's network code, or ranks that seem to be on other
    nodes.  Yielding costs a rank that is alone half a microsecond; spinning costs one that is not a time slice.
    """
    if times > LOOKS:
        os.sched_yield()


def yield_core(times: int) -> None:
    """Let another process run, if one wants to."""
    os.sched_yield()


def sleep(times: int) -> None:
    """Yield a few times, then leave the core for good: a rank that computes, or the kernel's network code, needs it."""
    if times <= YIELDS:
        os.sched_yield()
    else:
        time.sleep(SLEEP)


WAYS: dict[str, Patience] = {"spin": spin, "yield": yield_core, "sleep": sleep}


def patience(crowded: bool) -> Patience:
    """How to wait: as the variable MPI_ALLREDUCE_WAIT says, else by whether the node is ``crowded``.

    Raises
    ------
    ValueError
        If the variable is none of auto, spin, yield, sleep.
    """
    way = os.environ.get(VARIABLE, "auto")
    if way == "auto":
        return sleep if crowded else spin_first
    if way not in WAYS:
        raise ValueError(f"{VARIABLE}: expected auto, {', '.join(WAYS)}, got {way!r}")
    return WAYS[way]


def is_crowded(node: MPI.Intracomm) -> bool:
    """Whether the ranks of a node are more than the cores granted to them; collective."""
    return node.size > len(set().union(*node.allgather(os.sched_getaffinity(0))))
