"""The sub-commands ``bench`` and ``show``."""

import argparse
import os
import socket
from datetime import datetime
from pathlib import Path

from ..algorithms import names
from ..codecs import NONE, codec_names
from ..errors import UsageError
from ..memory import OPERATORS, dtype_named
from ..screen import console
from ..units import parse_rate, parse_sizes
from .heading import heading
from .records import pool, read, read_launches
from .settings import MEMORIES, MODES, Settings
from .skew import PATTERNS
from .table import WIDTH, print_rows

__all__ = ["add_bench", "add_show"]

SKEW_HELP = "let ranks arrive late by up to FACTOR x MPI_Allreduce's time: none, " + ", ".join(PATTERNS)
OTHER_NAMES = ("shared", "hierarchical")  # of ours; the list is here too, so that help works without MPI
COMMON_NAMES = (
    "recursive_doubling", "rabenseifner", "ring", "circulant", "double_binary_tree", "shared", "hierarchical", "auto",
    "vendor",
)  # fmt: skip
VENDOR_NAMES = ("vendor", "vendor_persistent", "vendor_reduce_bcast", "vendor_reduce_scatter_allgather")


def add_bench(commands) -> None:
    """Add ``bench`` to the sub-commands of a parser."""
    parser = commands.add_parser(
        "bench",
        help="time every algorithm against MPI_Allreduce (under mpirun or srun)",
        description="Validate, time and record allreduce algorithms beside the MPI library's own. "
        "Run it as: mpirun -n 4 python -m mpi_allreduce bench",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.set_defaults(run=_bench)
    sizes, dtypes = _checked(parse_sizes), _checked(dtype_named)
    what = parser.add_argument_group("what is measured").add_argument
    what(
        "--algorithms",
        default="common",
        metavar="LIST",
        help=f"comma-separated; common: {', '.join(COMMON_NAMES)}; all, ours, auto, reproducible[:NAME], "
        f"{', '.join(_all_names())}; parameters as in knomial_tree:8, pipelined_chain:64, hierarchical:ring",
    )
    what(
        "--codecs",
        default=NONE,
        metavar="LIST",
        help=f"comma-separated: {NONE}, all, {', '.join(codec_names())}; parameters as in int8:block=128, topk:0.001. "
        "A comma between parameters is written as +: int8:block=128+stochastic",
    )
    what("--sizes", default="4:16M", metavar="SIZES", type=sizes, help="bytes per rank: FIRST:LAST[:FACTOR] or a list")
    what("--dtype", default="float32", metavar="TYPE", type=dtypes, help="element type, e.g. bfloat16, float64_int")
    what("--op", default="SUM", metavar="OP", type=str.upper, choices=list(OPERATORS), help=", ".join(OPERATORS))
    what("--in-place", action="store_true", help="reduce within one buffer")
    what(
        "--memory", default="host", choices=MEMORIES, help="where buffers are; device: CUDA, each rank's own or shared"
    )
    what("--data", default="normal", metavar="WHAT", help="normal, integers, or FILE.npy ({rank} in it is the rank)")

    how = parser.add_argument_group("how it is measured").add_argument
    how("--mode", default="isolated", choices=MODES, help="ranks start each repetition together, or run back to back")
    how("--skew", default="none", metavar="PATTERN[:FACTOR]", help=SKEW_HELP)
    how("--buffers", default=0, type=int, metavar="N", help="pairs to rotate among; 0: beyond the cache, or 16")
    how("--ci", default=3.0, type=float, metavar="PERCENT", help="half-width of the 95%% interval that is good enough")
    how("--max-seconds", default=60.0, type=float, metavar="S", help="for all cases together")
    how("--probe-seconds", default=2.0, type=float, metavar="S", help="for round trips and additions, which fit reads")
    how("--passes", default=6, type=int, metavar="N", help="visits to each case, spread over the run")
    how("--repetitions", default=(5, 1_000), nargs=2, type=int, metavar=("MIN", "MAX"), help="bounds for each visit")
    how("--no-bind", action="store_true", help="do not bind ranks to cores where the launcher did not")
    how("--seed", default=1, type=int, help="of the data, the order of cases and random skew")

    how("--stall-seconds", default=300.0, type=float, metavar="S", help="abort if nothing is finished for so long")
    rates = _checked(parse_rate)
    how("--line-rate", default=0.0, type=rates, metavar="RATE", help="of a link, e.g. 25gbit: adds a column")

    record = parser.add_argument_group("record").add_argument
    record("--label", default="", help="a note kept with the launch")
    record("--out", type=Path, metavar="FILE.h5", help="appended to if it exists; by default a new file in results/")
    record(
        "--resume", type=Path, metavar="FILE.h5", help="complete its unfinished launch; all other options are its own"
    )


def add_show(commands) -> None:
    """Add ``show`` to the sub-commands of a parser."""
    parser = commands.add_parser(
        "show", help="print the table of a record", description="Print a record; needs no MPI."
    )
    parser.set_defaults(run=_show)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE.h5", help="written by bench")
    parser.add_argument("--pool", action="store_true", help="one table of all launches, the launch being the unit")


def _all_names() -> list[str]:
    return [*_our_names(), *VENDOR_NAMES]


def _our_names() -> list[str]:
    return [*names(), *OTHER_NAMES]


def _algorithms(text: str, memory: str) -> tuple[str, ...]:
    of_device = ("nccl",) if memory == "device" else ()
    groups = {"common": (*COMMON_NAMES, *of_device), "all": (*_all_names(), *of_device), "ours": _our_names()}
    chosen = [name for part in text.split(",") for name in groups.get(part.strip(), [part.strip()])]
    return tuple(dict.fromkeys(chosen))


def _codecs(text: str) -> tuple[str, ...]:
    chosen = [
        name
        for part in text.split(",")
        for name in ((NONE, *codec_names()) if part.strip() == "all" else (part.strip().replace("+", ","),))
    ]
    return tuple(dict.fromkeys(chosen))


def _checked(parse):
    """Let a parser's own words be argparse's."""

    def convert(text: str):
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _bench(args: argparse.Namespace) -> int:
    from .run import check_settings, find_unfinished, run  # starts MPI

    if args.resume:
        settings, launch = find_unfinished(args.resume)
        return run(settings, args.resume, resume=launch) if launch else _nothing_to_do(args.resume)
    settings = _settings(args)
    try:
        check_settings(settings)
    except (ValueError, TypeError, ModuleNotFoundError) as error:
        raise UsageError(error) from None
    return run(settings, args.out or _new_file())


def _settings(args: argparse.Namespace) -> Settings:
    return Settings(
        algorithms=_algorithms(args.algorithms, args.memory),
        sizes=args.sizes,
        dtype=args.dtype,
        op=args.op,
        in_place=args.in_place,
        data=args.data,
        mode=args.mode,
        skew=args.skew,
        buffers=args.buffers,
        ci=args.ci / 100,
        max_seconds=args.max_seconds,
        passes=args.passes,
        repetitions=tuple(args.repetitions),
        bind=not args.no_bind,
        seed=args.seed,
        label=args.label,
        stall_seconds=args.stall_seconds,
        line_rate=args.line_rate,
        codecs=_codecs(args.codecs),
        probe_seconds=args.probe_seconds,
        memory=args.memory,
    )


def _nothing_to_do(path: Path) -> int:
    from mpi4py import MPI

    if MPI.COMM_WORLD.rank == 0:
        print(f"{path}: all launches are finished, nothing to resume")
    return 0


def _new_file() -> Path:
    job = os.environ.get("SLURM_JOB_ID")
    name = f"bench-{socket.gethostname()}-{datetime.now():%Y%m%d-%H%M%S}" + (f"-job{job}" if job else "")
    return Path("results") / f"{name}.h5"


def _show(args: argparse.Namespace) -> int:
    screen = console(WIDTH)
    order = {known: i for i, known in enumerate(_all_names())}

    codecs = {known.partition(":")[0]: i for i, known in enumerate((NONE, *codec_names()))}

    def rank(row: dict) -> tuple:
        algorithm, codec = (row[key].partition(":")[0] for key in ("algorithm", "codec"))
        return row["bytes"], order.get(algorithm, len(order)), codecs.get(codec, len(codecs)), row["codec"]

    def in_order(rows: list[dict]) -> list[dict]:
        return sorted(rows, key=rank)

    try:
        launches = [(path, name, facts) for path in args.files for name, facts in read_launches(path).items()]
    except (OSError, ValueError) as error:
        raise UsageError(error) from None
    if args.pool and launches:
        rows = pool([row for path, name, _ in launches for row in read(path, name)])
        title = f"{len(launches)} launches pooled; of the first: "
        facts = launches[0][2]
        title += heading(facts["environment"], facts["settings"])
        print_rows(screen, in_order(rows), title, facts["settings"])
        return 0
    for path, launch, facts in launches:
        name = " ".join(filter(None, (launch, facts["label"], "" if facts["finished"] else "(not finished)")))
        settings = facts["settings"]
        title = f"{name}, {facts['started']}: {heading(facts['environment'], settings)}"
        print_rows(screen, in_order(read(path, launch)), title, settings)
    return 0
