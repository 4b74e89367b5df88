"""One core for each rank, where the launcher left all ranks on all cores."""

import os
import zlib
from pathlib import Path

from mpi4py import MPI

__all__ = ["Binding", "core_for"]


class Binding:
    """Binds this rank while it lasts; a context manager, collective.

    A launcher's own binding is respected: only where the ranks of a machine may all run on the same cores, and there
    are enough of them, each gets a core of its own, spread evenly.  Containers that call themselves hosts are one
    machine if they share a kernel: each binding its only rank to its first core would crowd all of them there.

    Attributes
    ----------
    done_by : str
        ``launcher``, ``benchmark``, or ``nobody`` (more ranks than cores, or not wanted).
    """

    def __init__(self, comm: MPI.Intracomm, wanted: bool):
        self._before = os.sched_getaffinity(0)
        machine = comm.Split(zlib.crc32(_kernel()) & 0x7FFFFFFF, comm.rank)
        cores = machine.allgather(frozenset(self._before))
        core = core_for(machine.rank, cores)
        machine.Free()
        self._core = core if wanted else None
        apart = len(set(cores)) > 1 or len(self._before) == 1
        self.done_by = "benchmark" if self._core is not None else "launcher" if apart else "nobody"

    def __enter__(self) -> "Binding":
        if self._core is not None:
            os.sched_setaffinity(0, {self._core})
        return self

    def __exit__(self, *_) -> None:
        os.sched_setaffinity(0, self._before)


def _kernel() -> bytes:
    """What tells running kernels apart."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return MPI.Get_processor_name().encode()


def core_for(rank: int, cores: list[frozenset[int]]) -> int | None:
    """The core for one rank of a node, given where each of its ranks may run; None if it should stay as it is.

    >>> core_for(1, [frozenset({0, 1, 2, 3})] * 2)
    2
    """
    shared = sorted(cores[rank])
    if len(set(cores)) > 1 or len(cores) > len(shared) or len(shared) == 1:
        return None
    return shared[rank * len(shared) // len(cores)]
