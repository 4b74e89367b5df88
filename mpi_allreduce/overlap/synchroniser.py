"""GradientSync: gradients become ready one after the other, and are reduced in buckets while the next are computed."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import numpy as np
from mpi4py import MPI

from ..codecs import NONE, ErrorFeedback
from ..memory import SUM, allocate, arrays
from ..runtime import Plan, plan, progress_thread
from .buckets import BUCKET_BYTES, FIRST_BYTES, Bucket, by_bytes, by_layers
from .capability import probe_progress
from .timeline import Timeline

__all__ = ["PROGRESS", "GradientSync"]

PROGRESS = ("auto", "none", "test", "thread", "vendor")


class GradientSync:
    """The mean of the gradients of all ranks, reduced in buckets while the backward pass goes on; collective.

    Parameters
    ----------
    comm : Intracomm
    parameters : mapping of str to array or shape
        In the order of the forward pass; gradients are expected the other way round.  The same on all ranks.  If they
        are arrays on a CUDA device, gradients are expected there, and buckets are made there.
    dtype : dtype
        Of the gradients: float32 or float64.
    bucket_bytes, first_bucket_bytes : int
        Parameters are collected up to so many bytes.
    layers_per_bucket : int, optional
        Collect so many parameters instead, whatever their size.
    algorithm, codec, nan : str
        As for :func:`mpi_allreduce.plan`.
    error_feedback : bool or ErrorFeedback
        Remember what the codec drops; True makes one for all parameters.
    average : bool
        The mean, else the sum.
    progress : str
        Who moves messages while gradients are computed: ``none``, ``test`` (calls of :meth:`probe`), ``thread`` (needs
        MPI_THREAD_MULTIPLE and a core to spare), ``vendor`` (MPI_Iallreduce, moved by the library and by ``probe``);
        ``auto``: which of the first three is best here is tried out once, see :func:`probe_progress`.
    rebuild : bool
        Put parameters in other buckets once, in the order in which they became ready in the first step.

    Attributes
    ----------
    gradients : dict of str to ndarray
        Views of the buckets, with the shapes of the parameters: write gradients there, then call :meth:`ready`.  They
        are others after a rebuild, so take them from here in each step.
    buckets : list of Bucket
    progress : str
        As given, or as chosen.
    step : int
        Completed steps.
    timeline : Timeline
    feedback : ErrorFeedback or None

    Examples
    --------
    >>> sync = GradientSync(comm, {"w": (64, 10), "b": (10,)}, codec="fp16")  # doctest: +SKIP
    >>> sync.gradients["b"][...] = ...  # doctest: +SKIP
    >>> sync.ready("b")  # doctest: +SKIP
    >>> sync.wait()  # doctest: +SKIP
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        parameters: Mapping[str, np.ndarray | tuple[int, ...]],
        *,
        dtype: np.dtype | type = np.float32,
        bucket_bytes: int = BUCKET_BYTES,
        first_bucket_bytes: int = FIRST_BYTES,
        layers_per_bucket: int | None = None,
        algorithm: str = "auto",
        codec: str = NONE,
        nan: str = "raise",
        error_feedback: bool | ErrorFeedback = False,
        average: bool = True,
        progress: str = "auto",
        rebuild: bool = True,
    ):
        if progress not in PROGRESS:
            raise ValueError(f"progress: expected {', '.join(PROGRESS)}, got {progress!r}")
        if layers_per_bucket is not None and layers_per_bucket < 1:
            raise ValueError(f"layers_per_bucket: expected at least 1, got {layers_per_bucket}")
        if bucket_bytes < 1 or first_bucket_bytes < 1:
            raise ValueError(f"bucket_bytes: expected at least 1, got {bucket_bytes} and {first_bucket_bytes}")
        if progress == "vendor" and codec != NONE:
            raise ValueError("progress: MPI_Iallreduce sends numbers as they are; choose another, or no codec")
        self.shapes = {name: tuple(getattr(p, "shape", p)) for name, p in parameters.items()}
        if not self.shapes:
            raise ValueError("parameters: there are none")
        on_device = [p for p in parameters.values() if arrays.is_cuda(p)]
        if 0 < len(on_device) < len(parameters):
            raise TypeError("parameters: some are on a CUDA device, others are not; give shapes, or all on one side")
        self._empty = arrays.cuda_device(on_device[0]).empty if on_device else allocate
        self.comm = comm
        self.dtype = np.dtype(dtype)
        self.average = average
        self.counts = {name: int(np.prod(shape)) for name, shape in self.shapes.items()}
        self._sizes = (bucket_bytes, first_bucket_bytes, layers_per_bucket)
        self._options = {"algorithm": "vendor" if progress == "vendor" else algorithm, "codec": codec, "nan": nan}
        self.feedback = self._make_feedback(error_feedback, codec)
        self.timeline = Timeline()
        self.step = 0
        self._plans: list[Plan] = []
        if progress == "auto":
            progress = "vendor" if algorithm == "vendor" else probe_progress(comm).progress
        self.progress = progress
        self._probes = progress in ("test", "vendor")
        self._rebuild = rebuild
        self._threads = ExitStack()
        self._make_buckets(list(reversed(self.shapes)))
        self._weights = np.zeros(1)
        self._total_weight = plan(comm, MPI.IN_PLACE, self._weights, op=SUM, algorithm="recursive_doubling")
        self._weighted = False
        if progress == "thread":
            self._threads.enter_context(progress_thread())

    def begin(self, weight: float | None = None) -> None:
        """Begin a step in which ranks have unequal shares of the batch; collective.

        Parameters
        ----------
        weight : float
            This rank's share, for instance the size of its local batch: the result is the sum of weight x gradient,
            divided by the sum of the weights.  Without it, or without this call, all ranks count alike.
        """
        self._weighted = weight is not None
        if self._weighted:
            if not weight >= 0:
                raise ValueError(f"weight: expected 0 or more, got {weight}")
            self.weight = float(weight)
            self._weights[0] = self.weight
            self._total_weight.start()

    def add(self, name: str, gradient: np.ndarray) -> None:
        """Copy a gradient to its place, or add it to what was accumulated there; it is ready then."""
        view = self.gradients[name]
        if name in self._filled:
            np.add(view, gradient, out=view)
        else:
            view[...] = gradient
        self.ready(name)

    def ready(self, name: str) -> None:
        """A gradient is in its place.  The allreduce of its bucket begins as soon as it is the next complete one.

        Raises
        ------
        ValueError
            If it was ready in this step already.
        """
        number = self._bucket_of[name]
        self._filled.add(name)
        if self._accumulating:
            return
        if name in self._ready:
            raise ValueError(f"ready: the gradient of {name!r} was ready in this step already")
        self._ready[name] = None
        self.timeline.add(self.step, "ready", number, name)
        self._missing[number] -= 1
        self._launch_complete()
        self.probe()

    def probe(self) -> None:
        """Move messages on, where that needs calls; cheap, for calls between layers."""
        if self._probes:
            self._note_ends(self._test())

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Only accumulate: gradients that become ready are not reduced before the next step outside of it."""
        self._accumulating = True
        try:
            yield
        finally:
            self._accumulating = False

    def wait(self) -> dict[str, np.ndarray]:
        """Wait until all buckets are reduced.

        Parameters whose gradient did not become ready count with what was accumulated, or else with zero.

        Returns
        -------
        dict of str to ndarray
            ``gradients``, now the mean (or sum) over all ranks; the same bits on all.
        """
        for name in self._bucket_of:
            if name not in self._filled:
                self.gradients[name][...] = 0
        self._missing = [0] * len(self.buckets)
        self._launch_complete()
        self.timeline.add(self.step, "wait")
        for number, made in enumerate(self._plans):
            made.wait()
            self._note_ends([number])
        divisor = self._divisor()
        if divisor != 1:
            for memory in self._memory:
                np.divide(memory, memory.dtype.type(divisor), out=memory)
        self.timeline.add(self.step, "done")
        self.timeline.end_step()
        order = list(self._ready)
        self.step += 1
        result = dict(self.gradients)
        if self._rebuild:
            self._rebuild = False
            self._rebuild_in(order)
        self._begin_step()
        return result

    def reduce_bucket(self, number: int) -> None:
        """Reduce one bucket alone, blocking, for measuring; not between the first ``ready`` and ``wait``."""
        self._plans[number]()

    def sent_bytes(self) -> int:
        """What this rank sent in the last step."""
        return sum((p.last_run.sent_bytes if p.last_run else p.sent_bytes) or 0 for p in self._plans)

    def state_dict(self) -> dict[str, object]:
        """What must be saved with the model, on each rank: the order of the parameters, and what is owed."""
        return {
            "step": self.step,
            "order": [name for bucket in self.buckets for name in bucket.names],
            "rebuild": self._rebuild,
            "feedback": self.feedback.state_dict() if self.feedback else None,
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Go on where :meth:`state_dict` was taken; collective."""
        if set(state["order"]) != set(self.shapes):
            raise ValueError(f"state: has the parameters {sorted(state['order'])}, expected {sorted(self.shapes)}")
        self.step, self._rebuild = state["step"], state["rebuild"]
        self._make_buckets(state["order"])
        if self.feedback:
            self.feedback.load_state_dict(state["feedback"])

    def free(self) -> None:
        """End the thread and give up the plans."""
        self._threads.close()
        for made in (*self._plans, self._total_weight):
            made.free()
        self._plans = []

    def __enter__(self) -> "GradientSync":
        return self

    def __exit__(self, *_) -> None:
        self.free()

    def _make_feedback(self, given: bool | ErrorFeedback, codec: str) -> ErrorFeedback | None:
        if given is True:
            given = ErrorFeedback(self.counts, self.dtype)
        if given and codec == NONE:
            raise ValueError('error_feedback: without a codec nothing is dropped; leave it out, or give codec="..."')
        if given and given.ranges != self.counts:
            raise ValueError(f"error_feedback: has the ranges {given.ranges}, the parameters have {self.counts}")
        return given or None

    def _make_buckets(self, order: list[str]) -> None:
        """Allocate, and bind plans; collective."""
        for made in self._plans:
            made.free()
        limit, first, layers = self._sizes
        if layers is None:
            self.buckets = by_bytes(self.counts, order, self.dtype.itemsize, limit, first)
        else:
            self.buckets = by_layers(self.counts, order, layers)
        self._memory = [self._empty(bucket.count, self.dtype) for bucket in self.buckets]
        self._bucket_of = {name: i for i, bucket in enumerate(self.buckets) for name in bucket.names}
        places = [bucket.places for bucket in self.buckets]
        self.gradients = {
            name: self._memory[i][places[i][name]].reshape(self.shapes[name]) for name, i in self._bucket_of.items()
        }
        self._plans = [self._bind(bucket, memory) for bucket, memory in zip(self.buckets, self._memory, strict=True)]
        for made in self._plans:
            made.next_run = self.step
        self._accumulating = False
        self._begin_step()

    def _bind(self, bucket: Bucket, memory: np.ndarray) -> Plan:
        feedback = self.feedback.bucket(bucket.names) if self.feedback else None
        return plan(self.comm, MPI.IN_PLACE, memory, op=SUM, error_feedback=feedback, **self._options)

    def _begin_step(self) -> None:
        self._filled: set[str] = set()
        self._ready: dict[str, None] = {}
        self._missing = [len(bucket.names) for bucket in self.buckets]
        self._launched = 0
        self._ended: set[int] = set()

    def _launch_complete(self) -> None:
        """In order on all ranks, as MPI_Iallreduce and shared memory want it."""
        while self._launched < len(self.buckets) and self._missing[self._launched] == 0:
            number = self._launched
            if self._weighted:
                np.multiply(self._memory[number], self.dtype.type(self.weight), out=self._memory[number])
            self.timeline.add(self.step, "start", number)
            self._plans[number].start()
            self._launched += 1

    def _test(self) -> list[int]:
        """The buckets that are complete."""
        return [i for i in range(self._launched) if i not in self._ended and self._plans[i].test()]

    def _note_ends(self, numbers: list[int]) -> None:
        for number in numbers:
            if number not in self._ended:
                self._ended.add(number)
                moments = self._plans[number].moments
                if moments.first is not None:
                    self.timeline.add(self.step, "first", number, seconds=moments.first)
                self.timeline.add(self.step, "end", number, seconds=moments.ended)

    def _divisor(self) -> float:
        if self._weighted:
            self._weighted = False
            total = float(self._total_weight.wait()[0])
            return total if self.average and total > 0 else 1
        return self.comm.size if self.average else 1

    def _rebuild_in(self, order: list[str]) -> None:
        """Rank 0's order counts for all; those that were not ready come last."""
        order = self.comm.bcast(order)
        order += [name for name in self._bucket_of if name not in order]
        if order != list(self._bucket_of):
            old = {name: view.copy() for name, view in self.gradients.items()}
            self._make_buckets(order)
            for name, values in old.items():
                self.gradients[name][...] = values
