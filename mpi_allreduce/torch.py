"""Gradients of PyTorch models: a communication hook for DistributedDataParallel, and a call for plain models.

>>> state = mpi_allreduce.torch.HookState(model, codec="fp16")  # doctest: +SKIP
>>> ddp.register_comm_hook(state, mpi_allreduce.torch.hook)  # doctest: +SKIP

or, without DistributedDataParallel, behind ``loss.backward()``:

>>> mpi_allreduce.torch.sync_gradients(model, codec="topk:0.01", error_feedback=True)  # doctest: +SKIP

Tensors are on the CPU, of float32 or float64.
"""

import weakref

import numpy as np
import torch
from mpi4py import MPI
from torch.distributed import GradBucket  # DDP looks at the annotations of a hook

from .codecs import NONE, ErrorFeedback
from .memory import AVG
from .memory.host import allocate
from .overlap.synchroniser import GradientSync
from .runtime import Plan, plan

__all__ = ["HookState", "hook", "sync_gradients"]


class HookState:
    """What the hook of one DistributedDataParallel model needs; collective.

    Parameters
    ----------
    model : Module
        The same on all ranks; the ranks of ``comm`` must be those of the process group, in the same order.
    comm : Intracomm
    algorithm, codec, nan : str
        As for :func:`mpi_allreduce.plan`.
    error_feedback : bool
        Remember what the codec drops, for each parameter, also when DDP rebuilds its buckets.

    Attributes
    ----------
    sent_bytes : int
        By this rank, in all calls of the hook.
    feedback : ErrorFeedback or None
        To be saved with the model.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        comm: MPI.Intracomm = MPI.COMM_WORLD,
        *,
        algorithm: str = "auto",
        codec: str = NONE,
        nan: str = "raise",
        error_feedback: bool = False,
    ):
        _check_threads()
        self.comm = comm.Dup()
        self.sent_bytes = 0
        self._options = {"algorithm": algorithm, "codec": codec, "nan": nan}
        self._names = {parameter: name for name, parameter in model.named_parameters()}
        dtype = next(iter(self._names)).detach().numpy().dtype
        counts = {name: parameter.numel() for parameter, name in self._names.items()}
        self.feedback = ErrorFeedback(counts, dtype) if error_feedback else None
        # Kept by what all ranks agree on: addresses of buckets may change on some ranks only.
        self._plans: dict[tuple[str, ...], tuple[Plan, np.ndarray]] = {}
        self._running: list[tuple[Plan, torch.Tensor, torch.futures.Future]] = []

    def start(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Begin to reduce a bucket; the last one of a backward pass waits for all."""
        tensor = bucket.buffer()
        names = tuple(self._names[parameter] for parameter in bucket.parameters())
        made, memory = self._plan(names, tensor)
        np.copyto(memory, tensor.numpy())
        future: torch.futures.Future = torch.futures.Future()
        self._running.append((made.start(), tensor, future))
        if bucket.is_last():
            self._finish()
        return future

    def _plan(self, names: tuple[str, ...], tensor: torch.Tensor) -> tuple[Plan, np.ndarray]:
        if names not in self._plans:
            memory = allocate(tensor.numel(), tensor.numpy().dtype)
            feedback = self.feedback.bucket(names) if self.feedback else None
            made = plan(self.comm, MPI.IN_PLACE, memory, op=AVG, error_feedback=feedback, **self._options)
            self._plans[names] = made, memory
        return self._plans[names]

    def _finish(self) -> None:
        running, self._running = self._running, []
        for made, tensor, future in running:
            np.copyto(tensor.numpy(), made.wait())
            self.sent_bytes += (made.last_run.sent_bytes if made.last_run else made.sent_bytes) or 0
            future.set_result(tensor)


def hook(state: HookState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The communication hook: ``ddp.register_comm_hook(HookState(model, ...), hook)``."""
    return state.start(bucket)


_syncs: "weakref.WeakKeyDictionary[torch.nn.Module, GradientSync]" = weakref.WeakKeyDictionary()


def sync_gradients(model: torch.nn.Module, comm: MPI.Intracomm = MPI.COMM_WORLD, **options) -> GradientSync:
    """Replace the gradients of a model by their mean over all ranks; collective, blocking.

    Parameters
    ----------
    model : Module
        Parameters without a gradient count as zero, and get one.
    comm : Intracomm
    **options
        As for :class:`mpi_allreduce.GradientSync`; those of the first call with this model count.

    Returns
    -------
    GradientSync
        The same one in each call: it has what must be saved with the model.
    """
    sync = _syncs.get(model)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if sync is None:
        dtype = next(iter(trained.values())).detach().numpy().dtype
        shapes = {name: tuple(p.shape) for name, p in trained.items()}
        sync = _syncs[model] = GradientSync(comm, shapes, dtype=dtype, **options)
    for name, parameter in reversed(trained.items()):
        if parameter.grad is not None:
            sync.add(name, parameter.grad.numpy())
    for name, gradient in sync.wait().items():
        parameter = trained[name]
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        np.copyto(parameter.grad.numpy(), gradient)
    return sync


def _check_threads() -> None:
    """DDP calls hooks from the threads of its backward pass, one at a time."""
    if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
        raise RuntimeError(
            "torch: the hook is called by threads of PyTorch's; MPI must be initialised with MPI_THREAD_SERIALIZED or "
            "MPI_THREAD_MULTIPLE, mpi4py's default: leave mpi4py.rc.thread_level alone"
        )
