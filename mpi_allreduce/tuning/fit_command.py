"""The sub-command ``fit``."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..screen import console
from ..simulate.machine import FORMAT
from ..units import format_bytes

__all__ = ["add_fit"]


def add_fit(commands) -> None:
    """Add ``fit`` to the sub-commands of a parser."""
    parser = commands.add_parser(
        "fit",
        help="the cost model of this machine from records: latency, bandwidth, reduction (no MPI)",
        description="Fit alpha (seconds of a message), beta (of a byte sent) and gamma (of a byte reduced) to records "
        "of our own algorithms, and print predicted beside measured times. simulate --machine takes the result.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE.h5", help="records of bench")
    parser.add_argument("--smallest", default=0, type=int, metavar="BYTES", help="leave smaller buffers out of the fit")
    parser.add_argument(
        "--test", type=Path, nargs="+", default=[], metavar="FILE.h5", help="records to be predicted only"
    )
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="where the machine is written")
    parser.set_defaults(run=_fit)


def _fit(args: argparse.Namespace) -> int:
    from .fitting import fit_machine, samples

    try:
        cases = samples(args.files)
        fit = fit_machine([case for case in cases if case.bytes >= args.smallest])
        tested = samples(args.test)
    except (OSError, ValueError) as error:
        raise UsageError(error) from None
    screen = console(120)

    def say(text: str) -> None:
        screen.print(text, soft_wrap=True, highlight=False, markup=False)

    m, intervals = fit.machine, fit.intervals
    say(f"{len(cases)} cases, {cases[0].library}; with 95 % intervals")
    for name, scale, unit in (
        ("alpha", 1e6, "us a message"),
        ("beta", 1e9, "ns a byte"),
        ("gamma", 1e9, "ns a byte reduced"),
    ):
        low, high = intervals[name]
        say(f"{name:6} {getattr(m, name) * scale:10.4g} ({low * scale:.4g} .. {high * scale:.4g}) {unit}")
    if m.beta:
        say(f"       {8e-9 / m.beta:10.4g} Gbit/s for each rank")
    _compare(say, "Fitted", cases, m)
    if tested:
        _compare(say, "Predicted, not fitted", tested, m)
    if args.out:
        facts = {"format": FORMAT, **asdict(m), "intervals": intervals, "records": [str(path) for path in args.files]}
        args.out.write_text(json.dumps(facts, indent=1) + "\n")
        say(f"Machine: {args.out}")
    return 0


def _compare(say, title: str, cases, machine) -> None:
    from .fitting import predict

    say(f"\n{title}\n{'ranks':>5} {'size':>9} {'algorithm':24} {'measured ms':>12} {'predicted ms':>13} {'off by':>8}")
    off = []
    for case in sorted(cases, key=lambda c: (c.ranks, c.bytes, c.algorithm)):
        predicted = predict(case, machine)
        off.append(predicted / case.seconds - 1)
        say(
            f"{case.ranks:5d} {format_bytes(case.bytes):>9} {case.algorithm:24} {case.seconds * 1e3:12.4g} "
            f"{predicted * 1e3:13.4g} {off[-1]:+8.0%}"
        )
    sizes = np.abs(off)
    near = np.mean(sizes <= 0.2)
    say(f"off by {np.median(sizes):.0%} in the middle, {sizes.max():.0%} at worst; {near:.0%} within 20 %")
