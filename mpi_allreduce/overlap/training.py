"""Data-parallel training of small networks on real images: what algorithms and codecs do to convergence."""

import json
import os
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import h5py
import numpy as np
from mpi4py import MPI

from ..codecs import NONE, ErrorFeedback
from ..errors import UsageError
from .data import load
from .networks import network
from .synchroniser import GradientSync

__all__ = ["Epoch", "TrainSettings", "Trainer"]


@dataclass(frozen=True)
class TrainSettings:
    """What is trained, and how.

    Attributes
    ----------
    data, network : str
        See :func:`.data.load` and :func:`.networks.network`.
    epochs : int
    batch : int
        Images of all ranks together, for one update.
    accumulate : int
        Micro-batches in which each rank handles its part; one allreduce for all of them.
    delay : int
        An update uses the gradient of so many steps ago (stale gradients), also across epochs; 0: synchronous.
    rate, momentum : float
        Of stochastic gradient descent.
    seed : int
        Of the weights and of the order of the images.
    algorithm, codec : str
    error_feedback : bool
    momentum_correction : bool
        The momentum is kept by the error feedback, and the optimiser has none.
    bucket_bytes : int
    progress : str
    """

    data: str = "digits"
    network: str = "mlp"
    epochs: int = 20
    batch: int = 256
    accumulate: int = 1
    delay: int = 0
    rate: float = 0.1
    momentum: float = 0.9
    seed: int = 1
    algorithm: str = "auto"
    codec: str = NONE
    error_feedback: bool = False
    momentum_correction: bool = False
    bucket_bytes: int = 1 << 20
    progress: str = "auto"

    def check(self) -> None:
        """Find what cannot work.

        Raises
        ------
        ValueError
            Naming the option.
        """
        for name, fine, accepted in (
            ("epochs", self.epochs >= 1, "at least 1"),
            ("batch", self.batch >= 1, "at least 1"),
            ("accumulate", self.accumulate >= 1, "at least 1"),
            ("delay", self.delay >= 0, "0 or more"),
            ("rate", self.rate > 0, "more than 0"),
            ("momentum", 0 <= self.momentum < 1, "0 <= momentum < 1"),
        ):
            if not fine:
                raise ValueError(f"{name}: expected {accepted}, got {getattr(self, name)}")
        if self.momentum_correction and not self.error_feedback:
            raise ValueError("momentum_correction: it is a part of error feedback; ask for that, too")
        if self.error_feedback and self.codec == NONE:
            raise ValueError("error_feedback: without a codec nothing is dropped")


@dataclass(frozen=True)
class Epoch:
    """What one epoch came to; the same on all ranks but for seconds.

    Attributes
    ----------
    number : int
        From 1.
    loss : float
        Mean over the training images.
    accuracy : float
        Fraction of the test images.
    sent_bytes : int
        By this rank.
    seconds, exposed_seconds : float
        In all, and waiting for gradients.
    digest : int
        Of the parameters.
    """

    number: int
    loss: float
    accuracy: float
    sent_bytes: int
    seconds: float
    exposed_seconds: float
    digest: int


@dataclass
class _Pending:
    """Gradients that are being reduced; once they were waited for, with the result."""

    sync: GradientSync
    gradients: dict[str, np.ndarray] | None = None


class Trainer:
    """Trains one network; collective.

    Parameters
    ----------
    settings : TrainSettings
        The same on all ranks.
    comm : Intracomm
    checkpoint : path, optional
        State is saved there behind each epoch, and taken up from there if it exists: two files for each rank, of the
        last two epochs, as a job may be killed when only some ranks have saved the last one.
    """

    def __init__(self, settings: TrainSettings, comm: MPI.Intracomm, checkpoint: Path | None = None):
        settings.check()
        self.settings = settings
        self.comm = comm
        self.data = load(settings.data)
        classes = int(self.data.labels.max()) + 1
        self.network = network(settings.network, self.data.images.shape[1], classes)
        self.parameters = self.network.initial(settings.seed)
        self.velocity = {name: np.zeros_like(values) for name, values in self.parameters.items()}
        self.epochs_done = 0
        # A gradient that is still in use when the next ones are computed needs buckets of its own.
        self.syncs = [self._make_sync() for _ in range(settings.delay + 1)]
        self._pending: deque[_Pending] = deque()
        self._steps = 0
        self._sent, self._exposed = 0, 0.0
        self._checkpoint = checkpoint
        if checkpoint is not None:
            self._resume()

    def run(self) -> Iterator[Epoch]:
        """Train; yields behind each epoch that was not done before.

        Raises
        ------
        RuntimeError
            If the ranks' parameters are not the same bits.
        """
        for number in range(self.epochs_done + 1, self.settings.epochs + 1):
            yield self._epoch(number)

    def accuracy(self) -> float:
        """The fraction of test images that are recognised."""
        logits, _ = self.network.forward(self.parameters, self.data.test_images)
        return float((logits.argmax(axis=1) == self.data.test_labels).mean())

    def digest(self) -> int:
        """Fingerprint of the parameters' bits."""
        fingerprint = 0
        for values in self.parameters.values():
            fingerprint = zlib.crc32(np.ascontiguousarray(values).view(np.uint8), fingerprint)
        return fingerprint

    def free(self) -> None:
        """Give up plans and threads, and gradients that no update has used yet."""
        for pending in self._pending:
            self._wait(pending)
        for sync in self.syncs:
            sync.free()

    def _make_sync(self) -> GradientSync:
        s = self.settings
        feedback: bool | ErrorFeedback = s.error_feedback
        if s.momentum_correction:
            counts = {name: int(np.prod(shape)) for name, shape in self.network.shapes.items()}
            feedback = ErrorFeedback(counts, momentum=s.momentum)
        return GradientSync(
            self.comm, self.network.shapes, bucket_bytes=s.bucket_bytes, first_bucket_bytes=s.bucket_bytes,
            algorithm=s.algorithm, codec=s.codec, error_feedback=feedback, average=False, progress=s.progress,
        )  # fmt: skip

    def _epoch(self, number: int) -> Epoch:
        started = perf_counter()
        images = len(self.data.images)
        order = np.random.default_rng([self.settings.seed, number]).permutation(images)
        loss, self._sent, self._exposed = 0.0, 0, 0.0
        for first in range(0, images, self.settings.batch):
            batch = order[first : first + self.settings.batch]
            loss += self._step(batch) * len(batch)
            if len(self._pending) > self.settings.delay:
                self._update(self._wait(self._pending.popleft()))
        self.epochs_done = number
        result = Epoch(
            number, self.comm.allreduce(loss) / images, self.accuracy(), self._sent, perf_counter() - started,
            self._exposed, self.digest(),
        )  # fmt: skip
        digests = self.comm.allgather(result.digest)
        if len(set(digests)) > 1:
            raise RuntimeError(f"epoch {number}: the ranks hold different parameters: {[f'{d:08x}' for d in digests]}")
        if self._checkpoint is not None:
            self._save()
        return result

    def _step(self, batch: np.ndarray) -> float:
        """Compute the gradient of a batch, and begin to reduce it; this rank's part of the mean loss."""
        sync = self.syncs[self._steps % len(self.syncs)]
        self._steps += 1
        mine = np.array_split(batch, self.comm.size)[self.comm.rank]
        *earlier, last = np.array_split(mine, self.settings.accumulate)
        loss = 0.0
        with sync.no_sync():
            for part in earlier:
                loss += self._gradient(sync, part, len(batch))
        loss += self._gradient(sync, last, len(batch))
        self._pending.append(_Pending(sync))
        return loss

    def _gradient(self, sync: GradientSync, part: np.ndarray, total: int) -> float:
        images, labels = self.data.images[part], self.data.labels[part]
        return self.network.gradient(self.parameters, images, labels, total, sync.add)

    def _wait(self, pending: "_Pending") -> dict[str, np.ndarray]:
        if pending.gradients is None:
            sync = pending.sync
            pending.gradients = sync.wait()
            self._sent += sync.sent_bytes()
            self._exposed += sync.timeline.exposed_seconds(sync.step - 1)
            sync.timeline.begin()
        return pending.gradients

    def _update(self, gradients: dict[str, np.ndarray]) -> None:
        """Make a step along the gradients."""
        momentum = np.float32(0 if self.settings.momentum_correction else self.settings.momentum)
        rate = np.float32(self.settings.rate)
        for name, gradient in gradients.items():
            velocity = self.velocity[name]
            np.multiply(velocity, momentum, out=velocity)
            np.add(velocity, gradient, out=velocity)
            self.parameters[name] -= rate * velocity

    def _facts(self) -> str:
        """What must be the same to go on."""
        settings = {k: v for k, v in asdict(self.settings).items() if k not in ("epochs", "progress")}
        return json.dumps({**settings, "ranks": self.comm.size}, sort_keys=True)

    def _file(self, epoch: int) -> Path:
        return self._checkpoint.with_name(f"{self._checkpoint.name}.rank{self.comm.rank}.{epoch % 2}.h5")

    def _save(self) -> None:
        path = self._file(self.epochs_done)
        draft = path.with_name(f".{path.name}.draft")
        draft.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(draft, "w") as file:
            file.attrs.update({"facts": self._facts(), "epochs_done": self.epochs_done, "steps": self._steps})
            for kind in ("parameters", "velocity"):
                for name, values in getattr(self, kind).items():
                    file[f"{kind}/{name}"] = values
            for i, pending in enumerate(self._pending):  # of steps that no update has used yet
                for name, values in self._wait(pending).items():
                    file[f"pending/{i}/{name}"] = values
            for i, sync in enumerate(self.syncs):
                group = file.create_group(f"sync/{i}")
                state = sync.state_dict()
                group.attrs.update({key: json.dumps(state[key]) for key in ("step", "order", "rebuild")})
                if sync.feedback:
                    sync.feedback.save(group)
        os.replace(draft, path)
        self.comm.Barrier()  # all ranks have saved the same epoch before any goes on

    def _resume(self) -> None:
        """Go on behind the last epoch that all ranks have saved; collective.

        Raises
        ------
        UsageError
            On all ranks: if there is none, but some ranks have saved something; or if it was made with other settings.
        """
        mine = {}
        for path in (self._file(0), self._file(1)):
            if path.exists():
                with h5py.File(path) as file:
                    mine[int(file.attrs["epochs_done"])] = (path, file.attrs["facts"])
        all_epochs = self.comm.allgather(sorted(mine))
        if not any(all_epochs):
            return
        common = set(all_epochs[0]).intersection(*all_epochs)
        if not common:
            raise UsageError(f"checkpoint: {self._checkpoint}: no epoch was saved by all ranks, they have {all_epochs}")
        path, facts = mine[max(common)]
        others = [other for other in self.comm.allgather(facts) if other != self._facts()]
        if others:
            raise UsageError(f"checkpoint: {self._checkpoint} was made with {others[0]}; this run has {self._facts()}")
        self._load(path)

    def _load(self, path: Path) -> None:
        with h5py.File(path) as file:
            self.epochs_done, self._steps = int(file.attrs["epochs_done"]), int(file.attrs["steps"])
            for kind in ("parameters", "velocity"):
                for name, values in getattr(self, kind).items():
                    values[...] = file[f"{kind}/{name}"]
            number = len(file.get("pending", ()))
            for i in range(number):
                sync = self.syncs[(self._steps - number + i) % len(self.syncs)]
                gradients = {name: file[f"pending/{i}/{name}"][()] for name in self.parameters}
                self._pending.append(_Pending(sync, gradients))
            for i, sync in enumerate(self.syncs):
                group = file[f"sync/{i}"]
                state = {key: json.loads(group.attrs[key]) for key in ("step", "order", "rebuild")}
                sync.load_state_dict({**state, "feedback": sync.feedback.state_dict() if sync.feedback else None})
                if sync.feedback:
                    sync.feedback.load(group)
