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

MICRO, NANO = (1e6, "us"), (1e9, "ns a byte")
UNITS = {"alpha": (1e6, "us a message"), "beta": NANO, "gamma": (1e9, "ns a byte reduced"),
         "L": MICRO, "o": MICRO, "g": MICRO, "G": NANO}  # fmt: skip


def add_fit(commands) -> None:
    """Add ``fit`` to the sub-commands of a parser."""
    parser = commands.add_parser(
        "fit",
        help="the cost model of this machine from records: latency, bandwidth, reduction (no MPI)",
        description="Fit alpha (seconds of a message), beta (of a byte sent) and gamma (of a byte reduced) to records "
        "of our own algorithms and to the messages and additions timed beside them, print LogGP's numbers, and "
        "predicted beside measured times. simulate --machine takes the result.",
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
    from .fitting import fit_machine, probes, samples

    try:
        cases = samples(args.files)
        fit = fit_machine([case for case in cases if case.bytes >= args.smallest], probes(args.files))
        tested = samples(args.test)
    except (OSError, ValueError) as error:
        raise UsageError(error) from None
    screen = console(120)

    def say(text: str) -> None:
        screen.print(text, soft_wrap=True, highlight=False, markup=False)

    say(f"{len(cases)} cases; {fit.machine.name}; with 95 % intervals")
    for name, estimate in fit.estimates.items():
        say(_line(name, estimate, f"from {fit.sources[name]}"))
    if fit.machine.beta:
        say(f"{'':12} {8e-9 / fit.machine.beta:10.4g} Gbit/s for each rank")
    for place, found in fit.exchanges.items():
        for name, estimate in found.items():
            say(_line(name, estimate, f"two ranks that send to each other, {place}"))
    for place, found in fit.loggp.items():
        for name, estimate in found.items():
            say(_line(name, estimate, f"LogGP, {place}"))
    if nanoseconds := {k: e.value * 1e9 for k, e in (fit.loggp["network"] or fit.loggp["node"]).items()}:
        say("LogGOPSim: " + " ".join(f"-{name} {value:.4g}" for name, value in nanoseconds.items()))
    _compare(say, "Fitted", cases, fit)
    if tested:
        _compare(say, "Predicted, not fitted", tested, fit)
    if args.out:
        args.out.write_text(json.dumps(_facts(fit, args.files), indent=1) + "\n")
        say(f"Machine: {args.out}")
    return 0


def _line(name: str, estimate, about: str) -> str:
    scale, unit = UNITS[name.removeprefix("local_")]
    value, low, high = (number * scale for number in estimate)
    return f"{name:12} {value:10.4g} ({low:.4g} .. {high:.4g}) {unit}; {about}"


def _facts(fit, files: list[Path]) -> dict[str, object]:
    """What :meth:`Machine.load` reads, and where it comes from."""
    return {
        "format": FORMAT,
        **asdict(fit.machine),
        "intervals": {name: [estimate.low, estimate.high] for name, estimate in fit.estimates.items()},
        "sources": fit.sources,
        "exchanges": {place: _plain(found) for place, found in fit.exchanges.items()},
        "loggp": {place: _plain(found) for place, found in fit.loggp.items()},
        "records": [str(path) for path in files],
    }


def _plain(estimates) -> dict[str, dict[str, float]]:
    return {name: estimate._asdict() for name, estimate in estimates.items()}


def _compare(say, title: str, cases, fit) -> None:
    """Measured and predicted, case by case; how far off, also by what exchanges alone say."""
    from .fitting import predict

    say(f"\n{title}\n{'ranks':>5} {'nodes':>5} {'size':>9} {'algorithm':24} {'measured ms':>12} {'predicted ms':>13} "
        f"{'off by':>8}")  # fmt: skip
    off = []
    cases = sorted(cases, key=lambda c: (c.ranks, c.per_node, c.bytes, c.algorithm))
    for case in cases:
        predicted = predict(case, fit.machine)
        off.append(predicted / case.seconds - 1)
        say(
            f"{case.ranks:5d} {-(-case.ranks // case.per_node):5d} {format_bytes(case.bytes):>9} {case.algorithm:24} "
            f"{case.seconds * 1e3:12.4g} {predicted * 1e3:13.4g} {off[-1]:+8.0%}"
        )
    say(_off_by(off))
    if fit.from_exchanges:
        say(f"by exchanges alone: {_off_by([predict(case, fit.from_exchanges) / case.seconds - 1 for case in cases])}")


def _off_by(errors: list[float]) -> str:
    sizes = np.abs(errors)
    near = np.mean(sizes <= 0.2)
    return f"off by {np.median(sizes):.0%} in the middle, {sizes.max():.0%} at worst; {near:.0%} within 20 %"
