"""Does MPI take pointers to a device's memory?  Asked of the library, and proved before it is trusted."""

import ctypes
import os
import subprocess
import sys
from dataclasses import dataclass

from mpi4py import MPI

from ..library import library_name
from ..memory import Device

__all__ = ["VARIABLE", "Awareness", "claimed", "find_awareness"]

VARIABLE = "MPI_ALLREDUCE_CUDA_AWARE"
PROOF_SECONDS = 60
_QUERIES = ("MPIX_Query_cuda_support", "MPIX_Query_hip_support", "MPIX_Query_ze_support")
_SWITCHES = {"MPICH_GPU_SUPPORT_ENABLED": "Cray MPICH", "I_MPI_OFFLOAD": "Intel MPI", "MV2_USE_CUDA": "MVAPICH2"}
_LAUNCHED = (  # by which a process knows that it is one of several ranks
    "PMI", "PRTE", "OMPI_COMM", "OMPI_UNIVERSE", "OMPI_APP", "OMPI_NUM", "OMPI_FIRST", "OMPI_FILE", "HYDRA",
    "I_MPI_HYDRA", "I_MPI_PMI", "MPI_LOCAL", "MPIEXEC", "PALS", "SLURM",
)  # fmt: skip


@dataclass(frozen=True)
class Awareness:
    """What was found, and why it is believed.

    Attributes
    ----------
    aware : bool
    reason : str
    """

    aware: bool
    reason: str

    def __str__(self) -> str:
        return f"{'takes' if self.aware else 'does not take'} device pointers: {self.reason}"


def find_awareness(comm: MPI.Intracomm, node: MPI.Intracomm, device: Device) -> Awareness:
    """Whether every rank may pass pointers to ``device``'s memory; collective, the same answer on all.

    Parameters
    ----------
    comm, node : Intracomm
        All ranks, and those on this node: one of them sends itself a message in a process of its own, which may crash.
    device : Device
    """
    said = comm.allgather((claimed(), bool(_decided())))
    verdict = _together([found for found, _ in said])
    if verdict.aware and not all(decided for _, decided in said):
        verdict = _together(comm.allgather(node.bcast(prove(device) if node.rank == 0 else None)))
    return verdict


def _together(every: list[Awareness]) -> Awareness:
    """One doubt is enough."""
    doubts = [(rank, found) for rank, found in enumerate(every) if not found.aware]
    if not doubts:
        return every[0]
    rank, found = doubts[0]
    return found if len(doubts) == len(every) else Awareness(False, f"on rank {rank}: {found.reason}")


def claimed() -> Awareness:
    """What the environment decides, or else what the library says of itself."""
    if _decided():
        return Awareness(_decided() == "1", f"{VARIABLE}={_decided()}")
    library = library_name(MPI.Get_library_version())
    for variable, its in _SWITCHES.items():
        value = os.environ.get(variable)
        if value is not None and its.split()[0] in library:
            return Awareness(value not in ("", "0"), f"{its}'s {variable}={value}")
    symbols = ctypes.CDLL(MPI.__file__)
    for name in _QUERIES:
        query = getattr(symbols, name, None)
        if query is not None and query():
            return Awareness(True, f"{library}'s {name} says so")
    if any(hasattr(symbols, name) for name in _QUERIES):
        return Awareness(False, f"{library}'s {_QUERIES[0]} says so")
    return Awareness(False, f"{library} cannot be asked; set {VARIABLE}=1 if you know better")


def prove(device: Device) -> Awareness:
    """Send a message from device memory to device memory in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(_LAUNCHED)}  # it is a job of one rank
    try:
        done = subprocess.run(
            [sys.executable, "-c", device.proof], env=environment, capture_output=True, text=True,
            timeout=PROOF_SECONDS, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return Awareness(False, f"it says so, but a message to itself was not over: {error}")
    if done.returncode == 0 and done.stdout.strip().endswith("right"):
        return Awareness(True, "it says so, and a message to itself arrived")
    told = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return Awareness(False, f"it says so, but a message to itself failed with status {done.returncode}: {told[:200]}")


def _decided() -> str:
    """``1``, ``0``, or empty.

    Raises
    ------
    ValueError
    """
    text = os.environ.get(VARIABLE, "")
    if text not in ("", "0", "1"):
        raise ValueError(f"{VARIABLE}: expected 0 or 1, got {text!r}")
    return text
