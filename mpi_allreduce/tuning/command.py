"""The sub-command ``tune``."""

import argparse
import os
import shlex
import sys
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ..errors import UsageError
from ..screen import console
from .vendors import VENDORS

__all__ = ["add_tune"]

WIDTH = 120


def add_tune(commands) -> None:
    """Add ``tune`` to the sub-commands of a parser."""
    parser = commands.add_parser(
        "tune",
        help="make the decision table of algorithm='auto' out of records (no MPI)",
        description="Choose the fastest algorithm for each situation and size, and write the table that "
        "algorithm='auto' reads.  Run it again with more records to refine an existing table.",
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE.h5", help="records of bench")
    parser.add_argument(
        "--table",
        type=Path,
        metavar="FILE.json",
        help="made, or refined if it exists; by default $MPI_ALLREDUCE_TABLE or ~/.config/mpi_allreduce/table.json",
    )
    parser.add_argument("--fresh", action="store_true", help="forget what an existing table holds")
    parser.add_argument(
        "--export",
        choices=VENDORS,
        help="instead of a table: rules with which an unmodified program uses the MPI library's fastest algorithms, "
        "from records of forced ones (jobs/tune_vendor)",
    )
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="where the rules are written")
    parser.add_argument(
        "--base",
        type=Path,
        metavar="FILE",
        help="MPICH's own selection that the rules change: its generic JSON file, or libmpi.so",
    )
    parser.set_defaults(run=_tune)


def _tune(args: argparse.Namespace) -> int:
    if args.export:
        return _export(args)
    from ..decisions.table import DecisionTable, default_path, write_table
    from .training import launches, measurements

    path = args.table or default_path()
    try:
        old = DecisionTable(path=str(path))
        if path.exists() and not args.fresh:
            old = DecisionTable.from_json(path.read_text(), str(path))
        table = old.merged(item for file in args.files for item in measurements(file))
        forced = [launch.forced for file in args.files for launch in launches(file) if launch.forced]
        if forced:
            number = f"{len(forced)} launch{'es' * (len(forced) > 1)}"
            print(f"Left out: {number} that forced an algorithm of the MPI library ({forced[0]}); that is for --export")
        if not table.entries:
            raise ValueError("the records hold no case that a table could be made of")
        write_table(table, path)
    except (OSError, ValueError) as error:
        raise UsageError(error) from None
    screen = console(WIDTH)
    for entry in table.entries:
        screen.print(f"\n{entry.situation}", soft_wrap=True)
        screen.print(_rows(entry))
    print(f"Table: {path}; algorithm='auto' reads it there")
    return 0


def _rows(entry) -> Table:
    from ..decisions.table import TIE
    from ..units import format_bytes

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name, justify in (("size", "right"), ("choice", "left"), ("next best", "left"), ("", "left")):
        table.add_column(name, justify=justify, no_wrap=True)
    table.add_column("launches", justify="right")
    for rule in entry.rules:
        ranking = dict(rule.ranking())
        own = ranking[rule.algorithm]
        rivals = [(name, relative / own) for name, relative in ranking.items() if name != rule.algorithm]
        rival = f"{rivals[0][0]}, {rivals[0][1]:.2f} x its time" if rivals else "-"
        verdict = "sure" if rule.is_sure() else "not sure: intervals overlap, or launches differ"
        if rivals and rivals[0][1] <= 1 + TIE:
            verdict = "a tie with the next"
        table.add_row(format_bytes(rule.bytes), rule.algorithm, rival, verdict, str(len(rule.launches)))
    return table


def _export(args: argparse.Namespace) -> int:
    from .export import LAUNCHES, clauses, export
    from .training import launches
    from .vendors import read_base

    vendor = VENDORS[args.export]
    try:
        found = export((launch for file in args.files for launch in launches(file)), vendor)
        screen = console(WIDTH)
        screen.print(
            f"\n{found.situation}; {found.launches} launch{'es' * (found.launches > 1)} of each", soft_wrap=True
        )
        screen.print(_decisions(found.decisions))
        if found.launches < LAUNCHES:
            print(f"Launches differ by more than the intervals show: what has fewer than {LAUNCHES} is never sure")
        if found.ineffective:
            print(f"The default's bits everywhere (no effect, or the same order): {', '.join(found.ineffective)}")
        if not found.gains:
            print("Nothing is surely faster than the library's default: no rules written")
            return 0
        base = read_base(args.base or _library()) if args.export == "mpich" else ""
        rules = clauses(found.decisions, vendor)
        text = vendor.write(rules, found.situation.ranks, base)
        path = args.out or Path(f"allreduce-{args.export}-{found.situation.ranks}.rules")
        if args.out or not vendor.inline:
            path.write_text(text)
            print(f"Rules: {path}")
    except (OSError, ValueError) as error:
        raise UsageError(error) from None
    print("Set, where the program is started:")
    for name, value in vendor.environment(text, path).items():
        print(f"export {name}={shlex.quote(value)}")
    return 0


def _library() -> Path:
    """The file of the MPI library that mpi4py would load, without starting it."""
    places = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), Path(sys.prefix, "lib")]
    for place in filter(None, places):
        if (path := Path(place, "libmpi.so.12")).exists() or (path := Path(place, "libmpi.so")).exists():
            return path
    raise ValueError("--base: libmpi.so was found neither by LD_LIBRARY_PATH nor in this environment; give it, or "
                     "MPICH's generic JSON file")  # fmt: skip


def _decisions(decisions) -> Table:
    from ..units import format_bytes

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name, justify in (("size", "right"), ("default us", "right"), ("rules say", "left"), ("times faster", "right")):
        table.add_column(name, justify=justify, no_wrap=True)
    table.add_column("")
    for d in decisions:
        ratio, low, high = d.factor
        kept = ratio == low == high == 1
        factor = "-" if kept else f"{ratio:.2f} ({low:.2f} .. {high:.2f})"
        verdict = "sure" if d.sure else d.note
        table.add_row(format_bytes(d.bytes), f"{d.default * 1e6:.4g}", str(d.forcing), factor, verdict)
    return table
