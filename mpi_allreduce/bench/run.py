"""One launch of the benchmark: every case validated, visited several times in shuffled order, and recorded."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import numpy as np
from mpi4py import MPI

from ..algorithms import get, names
from ..errors import UsageError
from ..memory import OPERATORS
from ..runtime import Plan, UnsupportedError, algorithm_names, plan
from ..screen import console
from .binding import Binding
from .environment import describe, last_level_cache, local_ranks
from .heading import heading
from .inputs import Arena, rotation, stride
from .passes import MOST_PASSES, Passes
from .progress import progress
from .records import Recorder, read
from .settings import Case, Settings, all_cases
from .skew import Skew
from .statistics import summarise
from .table import WIDTH, print_rows
from .timing import Measurement, Run, Timer
from .validation import Validation, Validator

__all__ = ["check_settings", "run"]

T = TypeVar("T")
BASELINE_REPETITIONS = 10


def check_settings(settings: Settings) -> None:
    """Find what cannot work before anything is sent.

    Raises
    ------
    ValueError, TypeError
        Naming the option.
    """
    for name in settings.algorithms:
        if name not in algorithm_names():
            get(name)  # raises, and lists what there is
    if settings.op not in OPERATORS:
        raise ValueError(f"op: unknown operator {settings.op!r}; known are {', '.join(OPERATORS)}")
    OPERATORS[settings.op].kernel(settings.dtype, 1)
    skew = Skew(settings.skew, 1, 0)
    if skew.active and settings.mode != "isolated":
        raise ValueError(
            f"skew: {settings.skew} needs mode isolated; in mode {settings.mode} ranks never start together"
        )
    at_least, at_most = settings.repetitions
    for name, fine, accepted in (
        ("algorithms", settings.algorithms, "at least one"),
        ("sizes", settings.sizes, "at least one"),
        ("buffers", settings.buffers >= 0, "0 or more"),
        ("ci", settings.ci > 0, "more than 0"),
        ("max_seconds", settings.max_seconds > 0, "more than 0"),
        ("passes", 1 <= settings.passes <= MOST_PASSES, f"1 to {MOST_PASSES}"),
        ("repetitions", 1 <= at_least <= at_most, "1 <= MIN <= MAX"),
    ):
        if not fine:
            raise ValueError(f"{name}: expected {accepted}, got {getattr(settings, name)}")


def run(settings: Settings, out: Path, comm: MPI.Intracomm = MPI.COMM_WORLD) -> bool:
    """Run the benchmark; collective.

    Parameters
    ----------
    settings : Settings
        The same on all ranks; see :func:`check_settings`.
    out : path
        The HDF5 file that the launch is appended to.
    comm : Intracomm

    Returns
    -------
    bool
        Whether every result was right; the same on all ranks.
    """
    comm = comm.Dup()
    with Binding(comm, settings.bind) as binding:
        launch = _Launch(settings, comm, binding)
        report = _together(comm, lambda: _Report(settings, out, launch) if comm.rank == 0 else None)
        all_right = True
        while cases := comm.bcast(report.next_pass() if report else None):
            for case in cases:
                try:
                    result = launch.visit(case, report.next_visit(case) if report else 0.0)
                except UnsupportedError as reason:
                    if report:
                        report.skipped(case, str(reason))
                    continue
                all_right &= not result.attributes["wrong"]
                if report:
                    report.finished(case, result)
        if report:
            report.close()
    comm.Free()
    return all_right


@dataclass(frozen=True)
class _Result:
    """What a visit found: attributes of its record, and on rank 0 times."""

    attributes: dict[str, object]
    measurement: Measurement | None


class _Launch:
    """What all cases of a launch share on one rank: memory, validator, timer."""

    def __init__(self, settings: Settings, comm: MPI.Intracomm, binding: Binding):
        self.settings = settings
        self.comm = comm
        self.environment = describe(comm, binding.done_by)
        cache, ranks_on_node = comm.bcast(last_level_cache()), local_ranks(comm)
        sizes = {case.bytes for case in all_cases(settings)}
        self.buffers = {size: settings.buffers or rotation(size, cache, ranks_on_node) for size in sizes}
        itemsize = settings.dtype.itemsize
        largest = max(number * stride(size, itemsize) * itemsize for size, number in self.buffers.items())
        self.arena = _together(comm, lambda: Arena(settings.data, settings.dtype, largest, comm.rank, settings.seed))
        longest = self.arena.source[: max(sizes) // itemsize]
        self.validator = Validator(comm, settings.op, longest)
        skew = Skew(settings.skew, comm.size, settings.seed)
        self.timer = Timer(comm, settings.mode, skew, settings.in_place, settings.ci, settings.repetitions)
        self._baselines: dict[int, float] = {}
        self._validated: dict[Case, tuple[Validation, int]] = {}

    def visit(self, case: Case, max_seconds: float) -> _Result:
        """Time one case, after validating it at the first visit; collective."""
        baseline = self._baseline(case.bytes) if self.timer.skew.active else 0.0
        bound = [self._bind(case.algorithm, *buffers) for buffers in self._buffers(case.bytes)]
        plans = [plan for plan, _ in bound]
        runs = [run for _, run in bound]
        send, receive, source = next(iter(self._buffers(case.bytes)))
        contribution = receive if self.settings.in_place else send

        def reduce(values: np.ndarray) -> np.ndarray:
            contribution[:] = values
            return plans[0]()

        if case not in self._validated:
            self._validated[case] = self.validator.judge(reduce, source)
        validation, bits = self._validated[case]
        for run in runs:
            run.restore()
        measurement = self.timer.measure(runs, max_seconds, baseline)
        accumulated = self.settings.in_place and self.settings.mode == "streaming"
        validation = self.validator.judge_again(validation, reduce(source) if accumulated else receive, bits)
        first = plans[0]
        sent = -1 if first.sent_bytes is None else self.comm.allreduce(first.sent_bytes, MPI.MAX)
        attributes = {
            "buffers": len(plans),
            "wrong": validation.wrong,
            "error": validation.error,
            "identical": validation.identical,
            "repeatable": validation.repeatable,
            "sent_bytes": sent,
            "scratch_bytes": first.scratch_bytes,
            "native_op": first.native_op,
            "baseline": baseline,
        }
        for made in plans:
            made.free()
        return _Result(attributes, measurement)

    def _buffers(self, size: int):
        return self.arena.buffers(size, self.buffers[size])

    def _bind(self, algorithm: str, send: np.ndarray, receive: np.ndarray, source: np.ndarray) -> tuple[Plan, Run]:
        op = OPERATORS[self.settings.op]
        if self.settings.in_place:
            made = plan(self.comm, MPI.IN_PLACE, receive, op=op, algorithm=algorithm)
            return made, Run(made, _copier(receive, source))
        made = plan(self.comm, send, receive, op=op, algorithm=algorithm)
        return made, Run(made, _copier(send, source))

    def _baseline(self, size: int) -> float:
        """The vendor's time without skew, to which delays are scaled."""
        if size not in self._baselines:
            made, run = self._bind("vendor", *next(iter(self._buffers(size))))
            times = np.empty(BASELINE_REPETITIONS)
            for i in range(BASELINE_REPETITIONS):
                run.restore()
                self.timer.barrier()
                start = perf_counter()
                made()
                times[i] = perf_counter() - start
            made.free()
            slowest = np.empty_like(times)
            self.comm.Allreduce(times, slowest, MPI.MAX)
            self._baselines[size] = float(np.median(slowest))
        return self._baselines[size]


def _together(comm: MPI.Intracomm, make: Callable[[], T]) -> T:
    """Do something that may fail on one rank; if it does on any, all raise the same error."""
    made, failure = None, None
    try:
        made = make()
    except (OSError, ValueError) as error:
        failure = str(error)
    failures = {rank: text for rank, text in enumerate(comm.allgather(failure)) if text}
    if failures:
        rank, text = next(iter(failures.items()))
        others = f" (and {len(failures) - 1} more ranks)" if len(failures) > 1 else ""
        raise UsageError(f"rank {rank}{others}: {text}")
    return made


def _copier(target: np.ndarray, source: np.ndarray) -> Callable[[], None]:
    return lambda: np.copyto(target, source)


class _Report:
    """Rank 0's part: the record, the progress, the table."""

    def __init__(self, settings: Settings, out: Path, launch: _Launch):
        self.settings = settings
        self.ranks = launch.comm.size
        self.screen = console(WIDTH)
        self.recorder = Recorder(out, launch.environment, settings.as_dict(), settings.label)
        cases = all_cases(settings)
        self.passes = Passes(cases, settings.passes, settings.max_seconds, settings.seed)
        self.times: dict[Case, list[np.ndarray]] = {case: [] for case in cases}
        self.heading = heading(launch.environment, settings.as_dict())
        self.screen.print(self.heading, soft_wrap=True)
        self.screen.print(
            f"{len(cases)} cases, each visited {settings.passes} times in shuffled order and more often if need be, "
            f"at most about {settings.max_seconds:g} s; record: {out} ({self.recorder.launch})",
            soft_wrap=True,
        )
        self.progress = progress(self.screen)
        self.done, self.total = 0, settings.passes * len(cases)

    def next_pass(self) -> list[Case]:
        """The cases to be visited next; empty at the end."""
        cases = [case for case in self.passes.next_pass(self._is_uncertain) if case in self.times]
        self.total = max(self.total, self.done + len(cases))
        return cases

    def _is_uncertain(self, case: Case) -> bool:
        return case in self.times and summarise(self.times[case]).half_width > self.settings.ci

    def next_visit(self, case: Case) -> float:
        """Tell the user what comes; the seconds that it may take."""
        self.progress.step(self.done, self.total, str(case))
        self.done += 1
        return self.passes.share()

    def skipped(self, case: Case, reason: str) -> None:
        """Record why a case could not be run; it is not visited again."""
        del self.times[case]
        self.recorder.add({**self._attributes(case), "skipped": reason}, None)

    def finished(self, case: Case, result: _Result) -> None:
        """Record a visit."""
        measurement = result.measurement
        self.times[case].append(measurement.completion)
        attributes = {
            **self._attributes(case),
            **result.attributes,
            "warmups": measurement.warmups,
            "ended_by": measurement.ended_by,
        }
        self.recorder.add(attributes, measurement.seconds, measurement.delays)

    def _attributes(self, case: Case) -> dict[str, object]:
        s = self.settings
        ours = case.algorithm in names()
        return {
            "algorithm": case.algorithm,
            "bytes": case.bytes,
            "count": case.bytes // s.dtype.itemsize,
            "dtype": str(s.dtype),
            "op": s.op,
            "codec": "none",
            "memory": "host",
            "mode": s.mode,
            "skew": s.skew,
            "data": s.data,
            "in_place": s.in_place,
            "ranks": self.ranks,
            "pass": self.passes.number - 1,
            "rounds": int(get(case.algorithm).cost.rounds(self.ranks)) if ours else -1,
        }

    def close(self) -> None:
        """Finish the record, and show it."""
        self.progress.close()
        self.recorder.finish()
        rows = read(self.recorder.path, self.recorder.launch)
        order = {name: i for i, name in enumerate(algorithm_names())}
        rows.sort(key=lambda row: (row["bytes"], order[row["algorithm"]]))
        print_rows(self.screen, rows, self.heading, self.settings.ci)
        self.screen.print(f"Record: {self.recorder.path} ({self.recorder.launch})", soft_wrap=True)
