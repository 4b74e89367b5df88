"""The sub-command ``guidelines``."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ..decisions.table import TIE
from ..errors import UsageError
from ..screen import console
from ..units import format_bytes

__all__ = ["add_guidelines"]

WIDTH = 140
NAMED = 3  # bounds in one line


def add_guidelines(commands) -> None:
    """Add ``guidelines`` to the sub-commands of a parser."""
    parser = commands.add_parser(
        "guidelines",
        help="where MPI_Allreduce is slower than it has any reason to be, from records (no MPI)",
        description="Check MPI_Allreduce against the self-consistent performance guidelines: not slower than Reduce + "
        "Bcast, than Reduce_scatter + Allgather, than our best algorithm, than itself on more bytes, than itself in k "
        "parts.  Record with: bench --algorithms vendor,vendor_reduce_bcast,vendor_reduce_scatter_allgather,ours",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE.h5", help="records of bench")
    parser.add_argument("--strict", action="store_true", help="exit status 1 if a violation is sure")
    parser.add_argument("--tie", type=float, default=TIE, metavar="FRACTION", help="what is no difference")
    parser.set_defaults(run=_guidelines)


def _guidelines(args: argparse.Namespace) -> int:
    from .guidelines import check, read_scopes

    if not 0 <= args.tie < float("inf"):
        raise UsageError(f"--tie: expected a fraction, 0 or more, got {args.tie}")
    try:
        reports = [check(scope, sizes, args.tie) for scope, sizes in read_scopes(args.files).items()]
    except (OSError, ValueError) as error:
        raise UsageError(error) from None
    screen = console(WIDTH)

    def say(text: str) -> None:
        screen.print(text, soft_wrap=True, highlight=False, markup=False)

    for report in reports:
        say(f"\n{report.scope}")
        if any(comparison.violated for comparison in report.comparisons):
            screen.print(_violations(report))
        for line in _closing(report):
            say(line)
    comparisons = [comparison for report in reports for comparison in report.comparisons]
    violated = sum(comparison.violated for comparison in comparisons)
    sure = sum(comparison.sure for comparison in comparisons)
    undecided = sum(comparison.undecided for comparison in comparisons)
    impossible = sum(len(each.sizes) for report in reports for each in report.unmeasured)
    say(
        f"\n{violated} of {len(comparisons)} comparisons violate a guideline by more than {args.tie:.3g} of the time, "
        f"{sure} of them surely; {undecided} more are undecided, as their intervals reach beyond that; {impossible} "
        "were not possible."
    )
    return int(args.strict and sure > 0)


def _violations(report) -> Table:
    from .guidelines import advice

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    table.add_column("guideline", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("slower than", overflow="fold")
    table.add_column("factor", justify="right", no_wrap=True)
    table.add_column("95 % interval", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("what to do", overflow="fold")
    violated = [comparison for comparison in report.comparisons if comparison.violated]
    for i, each in enumerate(violated):
        last = i + 1 == len(violated) or violated[i + 1].guideline is not each.guideline
        table.add_row(
            each.guideline.name,
            format_bytes(each.bytes),
            _bounds(each),
            f"{each.factor:.2f}",
            f"{each.low:.2f} .. {each.high:.2f}" if each.high < float("inf") else "too few visits",
            "sure" if each.sure else "not sure",
            advice(each, report),
            style="bold" if each.sure else None,
            end_section=last,
        )
    return table


def _bounds(comparison) -> str:
    """The one whose factor is given, then others."""
    others = [(bound, factor) for bound, factor in comparison.rivals if bound != comparison.bound]
    named = [f"{bound.beside(comparison.bytes)} ({factor:.2f})" for bound, factor in others[: NAMED - 1]]
    more = [f"{len(others) - len(named)} more"] if len(others) > len(named) else []
    return ", ".join([comparison.bound.beside(comparison.bytes), *named, *more])


def _closing(report) -> Iterator[str]:
    """What held and what did not, what was not compared, and the library's own knob."""
    from .guidelines import GUIDELINES, knob

    for guideline in GUIDELINES:
        here = [comparison for comparison in report.comparisons if comparison.guideline is guideline]
        if here:
            violated = sum(comparison.violated for comparison in here)
            yield f"{guideline.name}  {guideline.text}: violated in {violated} of {len(here)}"
    gaps: dict[tuple, list[str]] = {}
    for each in report.unmeasured:
        gaps.setdefault((each.needs, each.sizes), []).append(each.guideline.name)
    for (needs, sizes), names in gaps.items():
        at = ", ".join(map(format_bytes, sizes))
        yield f"Not compared: {', '.join(names)} at {at}: the records hold no (right) result of {needs}."
    if any(comparison.violated for comparison in report.comparisons) and (variable := knob(report.scope)):
        yield f"In programs that call MPI_Allreduce itself, {variable} forces another of the library's algorithms."
