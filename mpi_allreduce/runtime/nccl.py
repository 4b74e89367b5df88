"""NCCL's allreduce behind the interface of a plan, to be compared with; CuPy brings it."""

import warnings

import numpy as np
from mpi4py import MPI

from ..memory import AwareSpace, Operator
from .execution import Execution, Task, UnsupportedError
from .progress import Progress

__all__ = ["bind_nccl", "check_nccl"]

_OPERATORS = {"SUM": 0, "AVG": 0, "PROD": 1, "MAX": 2, "MIN": 3}  # ncclRedOp_t; the mean is divided by us
_TYPES = {"int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6, "float32": 7,
          "float64": 8, "bfloat16": 9}  # fmt: skip


def check_nccl(op: Operator, dtype: np.dtype) -> None:
    """Refuse what NCCL has no operator or type for.

    Raises
    ------
    ValueError
    """
    if op.name not in _OPERATORS:
        raise ValueError(f"algorithm: nccl has {', '.join(_OPERATORS)}, not {op.name}")
    if str(dtype) not in _TYPES:
        raise ValueError(f"algorithm: nccl takes {', '.join(_TYPES)}, not {dtype}")


def bind_nccl(task: Task) -> Execution:
    """Bind ncclAllReduce.

    Raises
    ------
    UnsupportedError
        On all ranks: for arrays of the host, without CuPy's NCCL, or where ranks share a device.
    """
    if task.device is None:
        raise UnsupportedError("nccl: works on arrays of a CUDA device; these are in host memory")
    return _Nccl(task, task.private.nccl(task.device))


def make_communicator(comm: MPI.Intracomm, device):
    """NCCL's communicator for these ranks and their devices; collective."""
    nccl, problem = _nccl()
    own = "" if problem else (MPI.Get_processor_name(), device.identity)
    everybody = comm.allgather((own, problem))
    problem = next((text for _, text in everybody if text), "")
    if not problem and len({place for place, _ in everybody}) < comm.size:
        problem = "ranks share a device, which it does not support"
    if problem:
        raise UnsupportedError(f"nccl: {problem}")
    identity = comm.bcast(nccl.get_unique_id() if comm.rank == 0 else None)
    return nccl.NcclCommunicator(comm.size, identity, comm.rank)


def _nccl():
    """CuPy's module, or why there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a missing library, which is told below
            from cupy.cuda import nccl
    except ImportError as error:
        return None, f"CuPy has no NCCL here: {error}"
    if not nccl.available:
        return None, 'CuPy has no NCCL here: its library is missing; pip install "nvidia-nccl-cu12" (or -cu13)'
    return nccl, ""


class _Nccl(Execution):
    """One call on a queue of its own."""

    exclusive = True
    reusable = False

    def __init__(self, task: Task, communicator):
        self.space = AwareSpace(task.device)
        self._task, self._communicator = task, communicator
        self.steps = [self.space.enter, self._queue]

    def progress(self) -> Progress:
        """Queue it, and look whether the device is done."""
        self.space.enter()
        self._queue()
        settled = self.space.settled()
        while not settled():
            yield 0

    def leave(self) -> None:
        self.space.leave()

    def where(self) -> str:
        return "inside NCCL's allreduce"

    def _queue(self) -> None:
        self.space.queue.run(self._call)

    def _call(self) -> None:
        from cupy.cuda import get_current_stream

        send, receive = self._task.source, self._task.receive
        self._communicator.allReduce(
            send.data.ptr, receive.data.ptr, receive.size, _TYPES[str(receive.dtype)],
            _OPERATORS[self._task.op.name], get_current_stream().ptr,
        )  # fmt: skip
