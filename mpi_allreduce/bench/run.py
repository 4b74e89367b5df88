"""One launch of the benchmark: every case validated, visited several times in shuffled order, and recorded."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import perf_counter
from typing import TypeVar

import numpy as np
from mpi4py import MPI

from ..algorithms import fitted, names
from ..codecs import NONE, Bound, PowerSGD, get_codec
from ..errors import UsageError
from ..library import library_name
from ..memory import OPERATORS, Kind, kind_of, name_of
from ..runtime import (
    Plan,
    UnsupportedError,
    algorithm_names,
    check_name,
    cuda_awareness,
    is_vendor,
    plan,
    use_local_device,
)  # fmt: skip
from ..screen import console
from .binding import Binding
from .environment import describe, last_level_cache, launched_ranks, local_ranks
from .heading import heading
from .inputs import Arena, rotation, stride
from .interruption import StopRequest, Watchdog
from .passes import MOST_PASSES, Passes
from .probes import measure_probes
from .progress import progress
from .records import Recorder, read, read_launches
from .settings import Case, Settings, all_cases
from .skew import Skew
from .statistics import completion, summarise
from .table import WIDTH, print_rows
from .timing import Measurement, Run, Timer
from .validation import Validation, Validator

__all__ = ["RIGHT", "STOPPED", "WRONG", "check_settings", "find_unfinished", "run"]

T = TypeVar("T")
BASELINE_REPETITIONS = 10
POISON = 0xA5
RIGHT, WRONG, STOPPED = 0, 1, 3  # exit status


def check_settings(settings: Settings) -> None:
    """Find what cannot work before anything is sent.

    Raises
    ------
    ValueError, TypeError
        Naming the option.
    """
    for name in settings.algorithms:
        check_name(name)
    if settings.op not in OPERATORS:
        raise ValueError(f"op: unknown operator {settings.op!r}; known are {', '.join(OPERATORS)}")
    OPERATORS[settings.op].kernel(settings.dtype, 1)
    _check_codecs(settings)
    skew = Skew(settings.skew, 1, 0)
    if skew.active and settings.mode != "isolated":
        raise ValueError(
            f"skew: {settings.skew} needs mode isolated; in mode {settings.mode} ranks never start together"
        )
    world = launched_ranks()
    if MPI.COMM_WORLD.size == 1 and world > 1:
        raise ValueError(
            f"{world} ranks were launched, but each is alone in its MPI_COMM_WORLD: mpirun or srun belongs to another "
            f"MPI library than mpi4py ({library_name(MPI.Get_library_version())}); srun may need --mpi=pmi2 or pmix"
        )
    at_least, at_most = settings.repetitions
    for name, fine, accepted in (
        ("algorithms", settings.algorithms, "at least one"),
        ("sizes", settings.sizes, "at least one"),
        ("buffers", settings.buffers >= 0, "0 or more"),
        ("ci", settings.ci > 0, "more than 0"),
        ("max_seconds", 0 < settings.max_seconds < inf, "more than 0"),
        ("probe_seconds", 0 <= settings.probe_seconds < inf, "0 or more"),
        ("seed", settings.seed >= 0, "0 or more"),
        ("stall_seconds", settings.stall_seconds > 0, "more than 0"),
        ("passes", 1 <= settings.passes <= MOST_PASSES, f"1 to {MOST_PASSES}"),
        ("repetitions", 1 <= at_least <= at_most, "1 <= MIN <= MAX"),
    ):
        if not fine:
            raise ValueError(f"{name}: expected {accepted}, got {getattr(settings, name)}")


def _check_codecs(settings: Settings) -> None:
    encoded = [name for name in settings.codecs if name != NONE]
    for name in encoded:
        if isinstance(get_codec(name), PowerSGD) and settings.dtype.itemsize < 4:
            raise ValueError(f"codecs: {name} needs float32 or float64, not {name_of(settings.dtype)}")
    if encoded and settings.op not in ("SUM", "AVG"):
        raise ValueError(f"codecs: {encoded[0]} can be used with op SUM or AVG, not with {settings.op}")
    if encoded and kind_of(settings.dtype) is not Kind.FLOATING:
        raise ValueError(f"codecs: {encoded[0]} encodes floating-point numbers, not {name_of(settings.dtype)}")
    if not all_cases(settings):
        raise ValueError(f"codecs: none of the algorithms {', '.join(settings.algorithms)} can use {encoded[0]}")


def run(settings: Settings, out: Path, comm: MPI.Intracomm = MPI.COMM_WORLD, resume: str = "") -> int:
    """Run the benchmark; collective.

    Parameters
    ----------
    settings : Settings
        The same on all ranks; see :func:`check_settings`.
    out : path
        The HDF5 file that the launch is appended to.
    comm : Intracomm
    resume : str, optional
        Name of an unfinished launch in ``out``, which is completed; ``settings`` must be its own.

    Returns
    -------
    int
        RIGHT, WRONG (some result was) or STOPPED (by a signal; the record is closed, and can be resumed); the same on
        all ranks.
    """
    comm = comm.Dup()
    advice = f"Finished visits are in {out}; complete them with: bench --resume {out}"
    with (
        Binding(comm, settings.bind) as binding,
        StopRequest() as stop,
        Watchdog(settings.stall_seconds, advice) as watchdog,
    ):
        launch = _Launch(settings, comm, binding, stop)
        report = _together(comm, lambda: _Report(settings, out, launch, resume) if comm.rank == 0 else None)
        watchdog.rescue = report.recorder.flush if report else None
        if settings.probe_seconds and not resume:
            probes = measure_probes(comm, settings.probe_seconds)
            if report:
                report.recorder.add_probes(probes)
        wrong = False
        while visit := comm.bcast(report.next_visit() if report else None):
            watchdog.finished(str(visit[0]))
            try:
                result = launch.visit(*visit)
            except UnsupportedError as reason:
                if report:
                    report.skipped(visit[0], str(reason))
                continue
            ours = not is_vendor(visit[0].algorithm)
            wrong |= bool(result.attributes["wrong"] or (ours and not result.attributes["identical"]))
            if report:
                report.finished(visit[0], result)
        watchdog.finished("the report")
        stopped = comm.bcast(report.close() if report else None)
    comm.Free()
    return STOPPED if stopped else WRONG if wrong else RIGHT


def find_unfinished(path: Path, comm: MPI.Intracomm = MPI.COMM_WORLD) -> tuple[Settings, str]:
    """The settings and the name of the launch in ``path`` that can be resumed; collective.

    Returns
    -------
    Settings
    str
        Empty if all launches are finished.

    Raises
    ------
    UsageError
        If there is no such file, or the launch ran on another number of ranks.
    """

    def look() -> tuple[dict, str]:
        launches = read_launches(path)
        if not launches:
            raise ValueError(f"resume: {path} holds no launch")
        name, facts = next(((n, f) for n, f in reversed(launches.items()) if not f["finished"]), ("", None))
        facts = facts or list(launches.values())[-1]
        if name and facts["environment"]["ranks"] != comm.size:
            ranks = facts["environment"]["ranks"]
            raise ValueError(f"resume: {name} in {path} ran on {ranks} ranks, but this run has {comm.size}")
        return facts["settings"], name

    values, name = comm.bcast(_together(comm, lambda: look() if comm.rank == 0 else None))
    return Settings.from_dict(values), name


@dataclass(frozen=True)
class _Result:
    """What a visit found: attributes of its record, and on rank 0 times."""

    attributes: dict[str, object]
    measurement: Measurement | None


class _Launch:
    """What all cases of a launch share on one rank: memory, validator, timer."""

    def __init__(self, settings: Settings, comm: MPI.Intracomm, binding: Binding, stop: StopRequest):
        self.settings = settings
        self.comm = comm
        self.stop = stop
        self.environment = describe(comm, binding.done_by)
        cache, ranks_on_node = comm.bcast(last_level_cache()), local_ranks(comm)
        sizes = {case.bytes for case in all_cases(settings)}
        self.buffers = {size: settings.buffers or rotation(size, cache, ranks_on_node) for size in sizes}
        itemsize = settings.dtype.itemsize
        largest = max(number * stride(size, itemsize) * itemsize for size, number in self.buffers.items())
        self.device = None if settings.memory == "host" else _together(comm, lambda: use_local_device(comm))
        if self.device is not None:
            found = cuda_awareness(comm, self.device)
            if comm.rank == 0:
                self.environment |= {"device": self.device.name, "cuda_aware": str(found)}
        self.arena = _together(
            comm, lambda: Arena(settings.data, settings.dtype, largest, comm.rank, settings.seed, self.device)
        )
        longest = self.arena.source[: max(sizes) // itemsize]
        self.validator = Validator(comm, settings.op, longest)
        skew = Skew(settings.skew, comm.size, settings.seed)
        self.timer = Timer(
            comm, settings.mode, skew, settings.in_place, settings.ci, settings.repetitions, lambda: bool(stop)
        )
        self._baselines: dict[int, float] = {}
        self._validated: dict[Case, tuple[Validation, int]] = {}

    def visit(self, case: Case, max_seconds: float) -> _Result:
        """Time one case, after validating it at the first visit; collective."""
        baseline = self._baseline(case.bytes) if self.timer.skew.active else 0.0
        bound = [self._bind(case, *buffers) for buffers in self._buffers(case.bytes)]
        plans = [plan for plan, _ in bound]
        runs = [run for _, run in bound]
        send, receive, source = next(iter(self._buffers(case.bytes)))
        contribution = receive if self.settings.in_place else send

        def reduce(values: np.ndarray) -> np.ndarray:
            self.arena.put(contribution, values)
            return self.arena.get(plans[0]()).reshape(-1)

        first = plans[0]
        limit = self._error_bound(first)
        if case not in self._validated:
            self._validated[case] = self.validator.judge(reduce, source, limit)
        validation, bits = self._validated[case]
        for run in runs:
            run.restore()
        if not self.settings.in_place:
            # The right answer of an earlier run must not pass for a later one's.
            self.arena.put(receive, np.full(receive.nbytes, POISON, np.uint8).view(receive.dtype))
        measurement = self.timer.measure(runs, max_seconds, baseline)
        accumulated = self.settings.in_place and self.settings.mode == "streaming"
        result = reduce(source) if accumulated else self.arena.get(receive)
        repeats = not is_vendor(case.algorithm) and not (first.codec and first.codec.chance)
        validation = self.validator.judge_again(validation, result, bits, limit, repeats=repeats)
        sent = -1 if first.sent_bytes is None else self.comm.allreduce(first.sent_bytes, MPI.MAX)
        attributes = {
            "buffers": len(plans),
            "wrong": validation.wrong,
            "error": validation.error,
            "identical": validation.identical,
            "repeatable": validation.repeatable,
            "sent_bytes": sent,
            "scratch_bytes": first.scratch_bytes,
            "chosen": first.algorithm,
            "reason": first.choice.reason if first.choice else "",
            "native_op": first.native_op,
            "baseline": baseline,
            "bound": validation.bound,
            "max_error": validation.max_error,
            **self._codec_facts(plans),
        }
        for made in plans:
            made.free()
        return _Result(attributes, measurement)

    def _buffers(self, size: int):
        return self.arena.buffers(size, self.buffers[size])

    def _bind(self, case: Case, send: np.ndarray, receive: np.ndarray, source: np.ndarray) -> tuple[Plan, Run]:
        op = OPERATORS[self.settings.op]
        shape = _shape(case.codec, receive.size)
        target, contribution = receive.reshape(shape), send.reshape(shape)
        if self.settings.in_place:
            contribution = MPI.IN_PLACE
        made = plan(self.comm, contribution, target, op=op, algorithm=case.algorithm, codec=case.codec)
        buffer = receive if self.settings.in_place else send
        return made, Run(self._timed(made), lambda: self.arena.put(buffer, source))

    def _timed(self, made: Plan) -> Callable[[], object]:
        """On a device a run is over when the device has done its part."""
        if self.device is None:
            return made
        wait = self.device.wait

        def call() -> None:
            made()
            wait()

        return call

    def _error_bound(self, made: Plan) -> Bound | None:
        """As rank 0 knows it, which takes part everywhere."""
        return self.comm.bcast(made.error_bound if self.comm.rank == 0 else None) if made.codec else None

    def _codec_facts(self, plans: list[Plan]) -> dict[str, object]:
        """What the codec did, on the busiest rank: bytes of the last run, mean seconds of all."""
        tallies = [made.last_run for made in plans]
        if tallies[0] is None:
            return {}
        runs = max(sum(tally.runs for tally in tallies), 1)
        encode = sum(tally.all_encode_seconds + tally.encode_seconds for tally in tallies) / runs
        decode = sum(tally.all_decode_seconds + tally.decode_seconds for tally in tallies) / runs
        sent = max(tally.sent_bytes for tally in tallies)
        found = self.comm.allgather((sent, encode + decode, encode, decode))
        _, _, encode, decode = max(found, key=lambda f: f[1])
        return {"wire_bytes": max(f[0] for f in found), "encode_seconds": encode, "decode_seconds": decode}

    def _baseline(self, size: int) -> float:
        """The vendor's time without skew, to which delays are scaled."""
        if size not in self._baselines:
            made, run = self._bind(Case("vendor", size), *next(iter(self._buffers(size))))
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
    except (OSError, ValueError, RuntimeError, ModuleNotFoundError) as error:
        failure = str(error)
    failures = {rank: text for rank, text in enumerate(comm.allgather(failure)) if text}
    if failures:
        rank, text = next(iter(failures.items()))
        others = f" (and {len(failures) - 1} more ranks)" if len(failures) > 1 else ""
        raise UsageError(f"rank {rank}{others}: {text}")
    return made


def _rounds(case: Case, ranks: int) -> int:
    """Dependent rounds of a schedule (or a bound of them, where its formula is one); -1 of what is none."""
    if case.algorithm.partition(":")[0] not in names():
        return -1
    algorithm = fitted(case.algorithm, ranks, case.bytes)
    return int(algorithm.cost.rounds(ranks, **algorithm.symbols))


def _shape(codec: str, count: int) -> tuple[int, ...]:
    """PowerSGD gets the matrix that is nearest to a square."""
    if codec == NONE or not isinstance(get_codec(codec), PowerSGD):
        return (count,)
    rows = next(n for n in range(int(count**0.5), 0, -1) if count % n == 0)
    return (rows, count // rows)


class _Report:
    """Rank 0's part: the record, the progress, the table."""

    def __init__(self, settings: Settings, out: Path, launch: _Launch, resume: str):
        self.settings = settings
        self.ranks = launch.comm.size
        self.stop = launch.stop
        self.stopped_by = ""
        self.screen = console(WIDTH)
        self.recorder = Recorder(out, launch.environment, settings.as_dict(), settings.label, resume)
        cases = all_cases(settings)
        self.times: dict[Case, list[np.ndarray]] = {case: [] for case in cases}
        if resume:
            self._take_up(cases)
        visited = Counter({case: len(visits) for case, visits in self.times.items()})
        self.passes = Passes(cases, settings.passes, settings.max_seconds, settings.seed, visited)
        self.heading = heading(launch.environment, settings.as_dict())
        self.screen.print(self.heading, soft_wrap=True)
        done = f"{visited.total()} visits are done already; " if resume else ""
        self.screen.print(
            f"{done}{len(cases)} cases, each visited {settings.passes} times in shuffled order and more often if need "
            f"be, at most about {settings.max_seconds:g} s; record: {out} ({self.recorder.launch})",
            soft_wrap=True,
        )
        self.progress = progress(self.screen)
        self.done = visited.total()

    def _take_up(self, cases: list[Case]) -> None:
        """What the unfinished launch has measured; cases that it could not run are not tried again."""
        for row in read(self.recorder.path, self.recorder.launch):
            case = Case(row["algorithm"], row["bytes"], row["codec"])
            if "skipped" in row:
                cases.remove(case)
                continue
            times = completion(row["seconds"], row["delays"])
            self.times[case] = [times[row["visit"] == number] for number in range(row["visits"])]

    def _is_uncertain(self, case: Case) -> bool:
        return summarise(self.times[case]).half_width > self.settings.ci

    def next_visit(self) -> tuple[Case, float] | None:
        """The next case, and the seconds that it may take; None at the end."""
        if self.stop and not self.stopped_by:
            self.stopped_by = self.stop.name
        visit = None if self.stopped_by else self.passes.next_visit(self._is_uncertain)
        if visit:
            self.progress.step(self.done, self.done + 1 + self.passes.left, str(visit[0]))
        return visit

    def skipped(self, case: Case, reason: str) -> None:
        """Record why a case could not be run; it is not visited again."""
        self.passes.forget(case)
        self.recorder.add({**self._attributes(case), "skipped": reason}, None)

    def finished(self, case: Case, result: _Result) -> None:
        """Record a visit, unless a signal cut it short."""
        measurement = result.measurement
        if measurement.ended_by == "signal":
            self.stopped_by = self.stop.name or "a signal to another rank"
            return
        self.done += 1
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
        return {
            "algorithm": case.algorithm,
            "bytes": case.bytes,
            "count": case.bytes // s.dtype.itemsize,
            "dtype": name_of(s.dtype),
            "op": s.op,
            "codec": case.codec,
            "memory": s.memory,
            "mode": s.mode,
            "skew": s.skew,
            "data": s.data,
            "in_place": s.in_place,
            "ranks": self.ranks,
            "pass": self.passes.number,
            "rounds": _rounds(case, self.ranks),
        }

    def close(self) -> bool:
        """Finish the record, and show it; whether a signal ended the run."""
        self.progress.close()
        path, launch = self.recorder.path, self.recorder.launch
        if self.stopped_by:
            self.recorder.flush()
        else:
            self.recorder.finish()
        rows = read(path, launch)
        order = {name: i for i, name in enumerate(algorithm_names())}
        codecs = self.settings.codecs
        rows.sort(
            key=lambda row: (
                row["bytes"],
                order.get(row["algorithm"].partition(":")[0], len(order)),
                codecs.index(row["codec"]),
            )
        )
        if rows:
            print_rows(self.screen, rows, self.heading, self.settings.as_dict())
        self.screen.print(f"Record: {path} ({launch})", soft_wrap=True)
        if self.stopped_by:
            text = f"Stopped by {self.stopped_by} after {self.done} visits; complete them with: bench --resume {path}"
            self.screen.print(text, soft_wrap=True)
        return bool(self.stopped_by)
