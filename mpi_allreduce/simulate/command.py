"""The sub-command ``verify``."""

import argparse

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ..algorithms import Algorithm, Formula, get, names
from ..errors import UsageError
from ..screen import console
from .verifier import Proof, ScheduleError, verify

WIDTH = 156  # of the widest line of the table

__all__ = ["add_verify", "parse_ranks"]


def add_verify(commands) -> None:
    """Add ``verify`` to the sub-commands of a parser."""
    parser = commands.add_parser(
        "verify",
        help="prove the algorithms right for given numbers of ranks (no MPI)",
        description="Run every rank of a schedule on symbols and prove: sends match receives; no deadlock even if "
        "every send is synchronous; nothing is overwritten while it is sent; each contribution counts once; all ranks "
        "get the same bits, also if blocks are encoded on the way; operand order where claimed; rounds, bytes sent and "
        "bytes reduced as in the formulas.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--algorithms", default="all", metavar="LIST", help="comma-separated: all, " + ", ".join(names())
    )
    parser.add_argument("--ranks", default="1:64,100,127:129", metavar="LIST", help="numbers and ranges of ranks")
    parser.set_defaults(run=_verify)


def parse_ranks(text: str) -> list[int]:
    """``1:4,8`` -> [1, 2, 3, 4, 8].

    Raises
    ------
    ValueError
    """
    ranks: set[int] = set()
    for part in text.split(","):
        first, colon, last = part.partition(":")
        try:
            chosen = range(int(first), int(last if colon else first) + 1)
        except ValueError:
            chosen = ()
        if not chosen:
            raise ValueError(f"ranks: expected numbers and ranges such as 1:64,100, got {part!r}")
        ranks.update(chosen)
    if min(ranks) < 1:
        raise ValueError(f"ranks: expected numbers from 1 on, got {text!r}")
    return sorted(ranks)


def _verify(args: argparse.Namespace) -> int:
    chosen = names() if args.algorithms == "all" else args.algorithms.split(",")
    try:
        sizes = parse_ranks(args.ranks)
        algorithms = [get(name.strip()) for name in chosen]
    except ValueError as error:
        raise UsageError(error) from None
    screen = console(WIDTH)
    last = sizes[-1]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in (
        "algorithm",
        "order",
        f"rounds at p={last}",
        "sent, mean",
        "by the busiest",
        "reduced",
        "encoded",
        "checked",
        "",
    ):
        table.add_column(name, no_wrap=name in ("algorithm", ""))
    failures = []
    for algorithm in algorithms:
        proofs, broken = _prove(algorithm, sizes)
        failures += broken
        table.add_row(*_cells(algorithm, proofs, broken))
    screen.print(table)
    for failure in failures:
        screen.print(failure, soft_wrap=True)
    screen.print(
        "Sent and reduced are multiples of the buffer; formulas hold for every size checked "
        "(L = ceil(lg p), q = largest power of two <= p, k = lg q, fold = 1 unless p = q; e = p rounded down to even; "
        "S segments, by default 8; radix r, by default 4: l = ceil(log_r p), u = m r^j, largest <= p with 1 <= m < r). "
        "Encoded: how often a contribution is, with a codec, on its way into the result."
    )
    screen.print(f"{len(algorithms) * len(sizes) - len(failures)} proved, {len(failures)} failed.")
    return 1 if failures else 0


def _prove(algorithm: Algorithm, sizes: list[int]) -> tuple[list[Proof], list[str]]:
    proofs, broken = [], []
    for size in sizes:
        try:
            proofs.append(verify(algorithm, size))
        except ScheduleError as error:
            broken.append(f"{algorithm.name}, p={size}: {error}")
    return proofs, broken


def _cells(algorithm: Algorithm, proofs: list[Proof], broken: list[str]) -> list[str]:
    checked = f"{len(proofs)} sizes"
    if not proofs:
        return [algorithm.name, "", "", "", "", "", "", checked, "FAILED"]
    proof, cost = proofs[-1], algorithm.cost
    return [
        algorithm.name,
        "kept" if algorithm.ordered else "changed",
        f"{proof.rounds} {_equals(cost.rounds)}",
        f"{float(proof.sent_mean):.3f} n",
        f"{float(proof.sent_max):.3f} n {_equals(cost.sent)}",
        f"{float(proof.reduced_max):.3f} n {_equals(cost.reduced)}",
        f"{proof.depth} x",
        checked,
        "FAILED" if broken else "proved",
    ]


def _equals(formula: Formula) -> str:
    return formula if formula.is_bound else f"= {formula}"
