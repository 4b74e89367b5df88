"""The sub-commands ``bench`` and ``show``."""

import argparse
import os
import socket
from datetime import datetime
from pathlib import Path

from ..algorithms import names
from ..errors import UsageError
from ..memory import OPERATORS, dtype_named
from ..screen import console
from .heading import heading
from .records import read, read_launches
from .settings import MODES, Settings, parse_sizes
from .table import WIDTH, print_rows

__all__ = ["add_bench", "add_show"]

VENDOR_NAMES = ("vendor", "vendor_persistent")


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
    add = parser.add_argument
    add("--algorithms", default="all", metavar="LIST", help="comma-separated: all, ours, " + ", ".join(_all_names()))
    add(
        "--sizes", default="4:16M", metavar="SIZES", type=_checked(parse_sizes),
        help="bytes per rank: FIRST:LAST (times 4), FIRST:LAST:FACTOR, or a list; units K, M, G",
    )  # fmt: skip
    add(
        "--dtype",
        default="float32",
        type=_checked(dtype_named),
        help="element type; float64_int etc. for MINLOC, MAXLOC",
    )
    add("--op", default="SUM", type=str.upper, choices=list(OPERATORS), metavar="OP", help=", ".join(OPERATORS))
    add("--in-place", action="store_true", help="reduce within one buffer")
    add(
        "--data", default="normal", metavar="WHAT",
        help="normal, integers, or FILE.npy (your own gradients, cut or tiled; {rank} in the name is the rank)",
    )  # fmt: skip
    add("--mode", default="isolated", choices=MODES, help="ranks start each repetition together, or run back to back")
    add(
        "--skew", default="none", metavar="PATTERN[:FACTOR]",
        help="let ranks arrive late by up to FACTOR x MPI_Allreduce's time: none, late, linear, random",
    )  # fmt: skip
    add(
        "--buffers",
        default=0,
        type=int,
        metavar="N",
        help="pairs of buffers to rotate among; 1: hot cache, 0: cold cache",
    )
    add(
        "--ci",
        default=3.0,
        type=float,
        metavar="PERCENT",
        help="half-width of the median's 95%% interval that ends a case",
    )
    add("--max-seconds", default=60.0, type=float, metavar="S", help="time for all cases together; they share it")
    add("--repetitions", default=(10, 20_000), nargs=2, type=int, metavar=("MIN", "MAX"), help="bounds for each case")
    add("--seed", default=1, type=int, help="of the data, the order of cases and random skew")
    add("--label", default="", help="a note kept with the launch")
    add(
        "--out",
        default=None,
        type=Path,
        metavar="FILE.h5",
        help="record; appended to if it exists (default: a new file in results/)",
    )


def add_show(commands) -> None:
    """Add ``show`` to the sub-commands of a parser."""
    parser = commands.add_parser(
        "show", help="print the table of a record", description="Print a record; needs no MPI."
    )
    parser.set_defaults(run=_show)
    parser.add_argument("file", type=Path, help="an HDF5 file written by bench")


def _all_names() -> list[str]:
    return [*names(), *VENDOR_NAMES]


def _algorithms(text: str) -> tuple[str, ...]:
    groups = {"all": _all_names(), "ours": names()}
    chosen = [name for part in text.split(",") for name in groups.get(part.strip(), [part.strip()])]
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
    from .run import check_settings, run  # starts MPI

    settings = Settings(
        algorithms=_algorithms(args.algorithms),
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
        repetitions=tuple(args.repetitions),
        seed=args.seed,
        label=args.label,
    )
    try:
        check_settings(settings)
    except (ValueError, TypeError) as error:
        raise UsageError(error) from None
    return 0 if run(settings, args.out or _new_file()) else 1


def _new_file() -> Path:
    job = os.environ.get("SLURM_JOB_ID")
    name = f"bench-{socket.gethostname()}-{datetime.now():%Y%m%d-%H%M%S}" + (f"-job{job}" if job else "")
    return Path("results") / f"{name}.h5"


def _show(args: argparse.Namespace) -> int:
    screen = console(WIDTH)
    try:
        launches = read_launches(args.file)
    except (OSError, ValueError) as error:
        raise UsageError(error) from None
    for launch, facts in launches.items():
        rows = read(args.file, launch)
        rows.sort(key=lambda row: (row["bytes"], _all_names().index(row["algorithm"])))
        name = " ".join(filter(None, (launch, facts["label"], "" if facts["finished"] else "(not finished)")))
        print_rows(screen, rows, f"{name}, {facts['started']}: {heading(facts['environment'], facts['settings'])}")
    return 0
