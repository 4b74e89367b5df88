"""The ``overlap`` experiment: a backward pass, real or paced, with its gradients reduced meanwhile."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from mpi4py import MPI

from ..bench.statistics import summarise
from ..codecs import NONE
from .computing import COMPUTING, Compute
from .measures import Hidden, hidden, ideal_end
from .models import model
from .records import Launch
from .synchroniser import GradientSync
from .timeline import chrome_trace

__all__ = ["MODES", "Experiment", "OverlapCase", "OverlapSettings", "Result"]

MODES = ("blocking", "none", "test", "thread", "vendor")


@dataclass(frozen=True)
class OverlapCase:
    """One way of reducing.

    Attributes
    ----------
    algorithm, codec : str
    mode : str
        ``blocking``: behind the backward pass; otherwise see ``progress`` of :class:`GradientSync`.
    bucket_bytes, layers : int
        Caps of buckets: bytes, or if ``layers`` is not 0 so many parameters.
    probes : int
        Calls of ``probe`` in each layer.
    compute_seconds : float
        Of the backward pass, all layers together.
    """

    algorithm: str
    codec: str = NONE
    mode: str = "test"
    bucket_bytes: int = 1 << 20
    layers: int = 0
    probes: int = 4
    compute_seconds: float = 0.0

    def __str__(self) -> str:
        size = f"{self.layers} layers" if self.layers else f"{self.bucket_bytes / 1024:g} KiB"
        return f"{self.algorithm} {self.codec} {self.mode}, {size}"

    @property
    def way(self) -> tuple[str, str, str, int, int, int]:
        """All but the computation."""
        return self.algorithm, self.codec, self.mode, self.bucket_bytes, self.layers, self.probes


@dataclass(frozen=True)
class OverlapSettings:
    """What all cases share.

    Attributes
    ----------
    model : str
    cases : tuple of OverlapCase
    computing : str
        ``paced``: a rank sleeps, as if an accelerator computed, which no work of the host delays; ``real``: matrix
        products of NumPy.
    iterations, passes : int
        In each visit of a case, and visits.
    seed : int
    """

    model: str
    cases: tuple[OverlapCase, ...]
    computing: str = "paced"
    iterations: int = 5
    passes: int = 3
    seed: int = 1


@dataclass(frozen=True)
class Result:
    """Medians of one case, in seconds, and what follows from them.

    Attributes
    ----------
    iteration, low, high : float
        With the 95 % interval of the median.
    computing, communicating : float
        Alone.
    buckets : int
    sent_bytes : int
        By the busiest rank in an iteration.
    hidden : Hidden
    """

    iteration: float
    low: float
    high: float
    computing: float
    communicating: float
    buckets: int
    sent_bytes: int
    hidden: Hidden


class Experiment:
    """Runs all cases in turn, in shuffled order, and records them; collective.

    Parameters
    ----------
    settings : OverlapSettings
    comm : Intracomm
    path : path or None
        HDF5 file, made or extended; None to record nothing.
        See :mod:`.records`.
    """

    def __init__(self, settings: OverlapSettings, comm: MPI.Intracomm, path: Path | None = None):
        self.settings = settings
        self.comm = comm
        self.shapes = model(settings.model)
        self.counts = {name: int(np.prod(shape)) for name, shape in self.shapes.items()}
        self._computes = {seconds: self._compute(seconds) for seconds in {c.compute_seconds for c in settings.cases}}
        rng = np.random.default_rng([settings.seed, comm.rank])
        self._values = {name: rng.standard_normal(shape, np.float32) for name, shape in self.shapes.items()}
        self._launch = None if path is None else Launch(path, comm, "overlap", asdict(settings))

    @classmethod
    def measure(cls, settings: OverlapSettings, comm: MPI.Intracomm) -> float:
        """Seconds that the first case's buckets take alone, one after the other; the slowest rank's, a median of 3."""
        trial = cls(settings, comm)
        with trial._make_sync(settings.cases[0]) as sync:
            trial._alone(sync)
            return float(np.median(trial._slowest([trial._alone(sync) for _ in range(3)]).sum(axis=1)))

    def run(self, report: Callable[[OverlapCase, Result, str], object] | None) -> None:
        """Measure; ``report(case, result, trace)`` is called on rank 0 when all passes of a case are over."""
        order = np.random.default_rng(self.settings.seed)
        visits: dict[OverlapCase, list] = {case: [] for case in self.settings.cases}
        for number in range(self.settings.passes):
            for index in order.permutation(len(self.settings.cases)):
                case = self.settings.cases[index]
                visits[case].append(self._visit(case))
                if number + 1 == self.settings.passes:
                    self._finish(case, visits[case], report)

    def _visit(self, case: OverlapCase) -> dict:
        with self._make_sync(case) as sync:
            self._iterate(sync, case)  # warm up
            times, ready = [], []
            for _ in range(self.settings.iterations):
                seconds, at = self._iterate(sync, case)
                times.append(seconds)
                ready.append(at)
            timelines = self.comm.gather(sync.timeline)
            alone = [self._alone(sync) for _ in range(self.settings.iterations)]
            computing = [self._compute_only(case) for _ in range(self.settings.iterations)]
            return {
                "seconds": self._all_ranks(times),
                "computing": self._all_ranks(computing),
                "bucket_seconds": self._slowest(alone),
                "ready": np.median(self._slowest(ready), axis=0),
                "buckets": len(sync.buckets),
                "sent_bytes": self.comm.allreduce(sync.sent_bytes(), MPI.MAX),
                "timelines": timelines,
            }

    def _compute(self, seconds: float) -> Compute:
        """Layers take time by their number of parameters."""
        total = sum(self.counts.values())
        kind = COMPUTING[self.settings.computing]
        return kind({name: seconds * count / total for name, count in self.counts.items()})

    def _make_sync(self, case: OverlapCase) -> GradientSync:
        return GradientSync(
            self.comm, self.shapes, bucket_bytes=case.bucket_bytes, first_bucket_bytes=case.bucket_bytes,
            layers_per_bucket=case.layers or None, algorithm=case.algorithm, codec=case.codec,
            progress="none" if case.mode == "blocking" else case.mode, rebuild=False, nan="pass",
        )  # fmt: skip

    def _iterate(self, sync: GradientSync, case: OverlapCase) -> tuple[float, list[float]]:
        """One backward pass; its seconds, and when each bucket was complete."""
        bucket_of = {name: i for i, bucket in enumerate(sync.buckets) for name in bucket.names}
        complete = [0.0] * len(sync.buckets)
        compute, probe = self._computes[case.compute_seconds], None if case.mode == "blocking" else sync.probe
        self.comm.Barrier()
        sync.timeline.begin()
        compute.begin()
        started = perf_counter()
        for name in reversed(self.shapes):
            compute(name, probe, case.probes)
            complete[bucket_of[name]] = perf_counter() - started
            np.copyto(sync.gradients[name], self._values[name])
            if case.mode != "blocking":
                sync.ready(name)
        if case.mode == "blocking":
            for number in range(len(sync.buckets)):
                sync.reduce_bucket(number)
        else:
            sync.wait()
        return perf_counter() - started, complete

    def _compute_only(self, case: OverlapCase) -> float:
        compute = self._computes[case.compute_seconds]
        self.comm.Barrier()
        compute.begin()
        started = perf_counter()
        for name in reversed(self.shapes):
            compute(name, None, 1)
        return perf_counter() - started

    def _alone(self, sync: GradientSync) -> list[float]:
        """Seconds of each bucket, one after the other and nothing else."""
        seconds = []
        for bucket in sync.buckets:
            for name in bucket.names:
                np.copyto(sync.gradients[name], self._values[name])
        for number in range(len(sync.buckets)):
            self.comm.Barrier()
            started = perf_counter()
            sync.reduce_bucket(number)
            seconds.append(perf_counter() - started)
        return seconds

    def _all_ranks(self, mine: list[float]) -> np.ndarray:
        """[iteration, rank], on all ranks."""
        return np.array(self.comm.allgather(mine)).T

    def _slowest(self, mine: list[list[float]]) -> np.ndarray:
        """[iteration, bucket]: the slowest rank's."""
        return np.array(self.comm.allgather(mine)).max(axis=0)

    def _finish(self, case: OverlapCase, visits: list[dict], report) -> None:
        if self.comm.rank:
            return
        computing = float(np.median(np.concatenate([v["computing"].max(axis=1) for v in visits])))
        per_bucket = np.median(np.concatenate([v["bucket_seconds"] for v in visits]), axis=0)
        summary = summarise([v["seconds"].max(axis=1) for v in visits])
        ready = np.minimum(np.median([v["ready"] for v in visits], axis=0), computing)
        ideal = ideal_end(ready, per_bucket)
        result = Result(
            iteration=summary.median, low=summary.low, high=summary.high, computing=computing,
            communicating=float(per_bucket.sum()), buckets=visits[0]["buckets"], sent_bytes=visits[0]["sent_bytes"],
            hidden=hidden(summary.median, computing, float(per_bucket.sum()), ideal),
        )  # fmt: skip
        trace = chrome_trace(visits[-1]["timelines"])
        if self._launch is not None:
            self._record(case, visits, result, trace)
        report(case, result, trace)

    def _record(self, case: OverlapCase, visits: list[dict], result: Result, trace: str) -> None:
        def write(launch) -> None:
            group = launch.create_group(f"{len(launch) - 1:03d} {case}".replace("/", "|"))
            facts = {**asdict(case), **asdict(result)}
            group.attrs.update({**facts.pop("hidden"), **facts})
            for name in ("seconds", "computing", "bucket_seconds"):
                group[name] = np.concatenate([visit[name] for visit in visits])
            group["trace"] = trace
            for rank, timeline in enumerate(visits[-1]["timelines"]):
                timeline.save(group.create_group(f"timeline/{rank}"))

        self._launch.write(write)
