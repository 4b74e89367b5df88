"""The sub-command ``tune``."""

import argparse
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ..errors import UsageError
from ..screen import console

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
    parser.set_defaults(run=_tune)


def _tune(args: argparse.Namespace) -> int:
    from ..decisions.table import DecisionTable, default_path, write_table
    from .training import measurements

    path = args.table or default_path()
    try:
        old = DecisionTable(path=str(path))
        if path.exists() and not args.fresh:
            old = DecisionTable.from_json(path.read_text(), str(path))
        table = old.merged(item for file in args.files for item in measurements(file))
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
