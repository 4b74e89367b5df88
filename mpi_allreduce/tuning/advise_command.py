"""The sub-command ``advise``."""

import argparse
import re
from functools import cache
from math import prod
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ..codecs import NONE
from ..errors import UsageError
from ..screen import console
from ..units import format_bytes

__all__ = ["add_advise"]

WIDTH = 150
SHOWN = 12


def add_advise(commands) -> None:
    """Add ``advise`` to the sub-commands of a parser."""
    parser = commands.add_parser(
        "advise",
        help="which algorithm, codec, bucket size and accumulation for a model, out of records (no MPI)",
        description="Predict, from what the benchmark measured here, how long an iteration of training takes with each "
        "algorithm, codec and bucket size; choose; say how sure that is, and what would change the answer.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.set_defaults(run=_advise)
    option = parser.add_argument
    option("files", type=Path, nargs="+", metavar="FILE.h5", help="records of bench, with --codecs if one may be used")
    what = parser.add_mutually_exclusive_group(required=True).add_argument
    what("--model", metavar="NAME", help="resnet50, bert-base or mlp:WIDTHS")
    what("--parameters", metavar="N", help="such as 25.6M (millions); taken as 100 equal layers")
    what("--layers", metavar="FILE.json", help='{"name": [shape], ...} in the order of the forward pass')
    option("--compute-seconds", type=float, required=True, metavar="T", help="of one backward pass")
    option("--other-seconds", type=float, default=0.0, metavar="T", help="of the rest of a step (forward, loading)")
    option("--error-budget", type=float, default=0.0, metavar="E", help="largest relative L2 error of a reduction")
    option("--exposed", type=float, default=5.0, metavar="PERCENT", help="of an iteration that may be communication")
    option("--ranks", type=int, metavar="N", help="another number than was measured: scaled by the cost model")
    option("--nodes", type=int, metavar="N", help="which record, if ranks were spread in several ways")
    option("--memory", default="host", choices=("host", "device"), help="where the gradients are")


def _advise(args: argparse.Namespace) -> int:
    from .advising import advise, scaled
    from .curves import curves

    try:
        workload = _workload(args)
        places = curves(args.files)
        place = _choose(places, args)
        ways = {way: curve for way, curve in places[place].items() if _can_be_used(way)}
        warning, left_out = "", []
        if args.ranks not in (None, place.ranks):
            measured, ways = ways, scaled(ways, _ratio(args, place))
            left_out = sorted({way.algorithm for way in measured} - {way.algorithm for way in ways})
            warning = (
                f"NOT MEASURED: there is no record of {args.ranks} ranks. The times of {place.ranks} ranks are "
                "multiplied with what the cost model says that the number of ranks changes; contention that it does "
                "not know is left out."
            )
        advice = advise(workload, ways, args.error_budget)
    except (OSError, ValueError) as error:
        raise UsageError(error) from None
    screen = console(WIDTH)

    def say(text: str) -> None:
        screen.print(text, soft_wrap=True, highlight=False, markup=False)

    say(
        f"{_place_of(place, args.ranks)}; {format_bytes(workload.bytes)} of float32 gradients in "
        f"{len(workload.counts)} parameters; backward pass {_time(workload.compute_seconds)}"
    )
    if warning:
        say(warning)
    if left_out:
        say(f"Left out, as they are no schedules that the model knows: {', '.join(left_out)}.")
    screen.print(_table(workload, advice, args.exposed / 100))
    for line in _words(workload, ways, advice, args, warning):
        say(line)
    return 0


def _place_of(place, ranks: int | None):
    """The place that is spoken of."""
    if ranks in (None, place.ranks):
        return place
    return place._replace(ranks=ranks, nodes=-(-ranks * place.nodes // place.ranks))


def _workload(args: argparse.Namespace):
    from ..overlap.models import model
    from .advising import Workload, even

    if not args.compute_seconds > 0 or not args.other_seconds >= 0:
        raise ValueError("compute-seconds: expected more than 0, and other-seconds 0 or more")
    if not 0 < args.exposed < 100:
        raise ValueError(f"exposed: expected a percentage between 0 and 100, got {args.exposed:g}")
    if args.parameters is not None:
        counts = even(_parameters(args.parameters))
    else:
        counts = {name: prod(shape) for name, shape in model(args.model or args.layers).items()}
    return Workload(counts, args.compute_seconds, args.other_seconds)


def _parameters(text: str) -> int:
    """``25.6M`` -> 25600000: thousands, as models are described."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGB]?)", text.strip(), re.IGNORECASE)
    number = round(float(match[1]) * {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}[match[2].upper()]) if match else 0
    if number < 1:
        raise ValueError(f"parameters: expected a number such as 25.6M, got {text!r}")
    return number


def _can_be_used(way) -> bool:
    """Whether gradients can be reduced that way in buckets."""
    from ..algorithms import names

    return way.algorithm == "vendor" or way.algorithm.partition(":")[0] in names()


def _choose(places, args: argparse.Namespace):
    """The record that is about this number of ranks, or the nearest."""
    fitting = [p for p in places if p.memory == args.memory and args.nodes in (None, p.nodes)]
    if not fitting:
        known = "; ".join(map(str, places)) or "nothing: sums of float32 without skew are needed"
        raise ValueError(f"advise: no record of {args.memory} memory; there is {known}")
    if args.ranks is not None:
        nearest = min(abs(p.ranks - args.ranks) for p in fitting)
        fitting = [p for p in fitting if abs(p.ranks - args.ranks) == nearest]
    if len(fitting) > 1:
        raise ValueError(f"advise: choose one by --ranks and --nodes, or give its record only: "
                         f"{'; '.join(map(str, fitting))}")  # fmt: skip
    return fitting[0]


def _ratio(args: argparse.Namespace, place):
    """(algorithm, bytes) -> predicted time at the wanted number of ranks, over that at the measured one."""
    from ..algorithms import names
    from .fitting import Sample, fit_machine, predict, probes, samples

    cases = [case for case in samples(args.files) if case.library == place.library]
    machine = fit_machine(cases, probes(args.files)).machine
    per_node = -(-place.ranks // place.nodes)

    @cache
    def ratio(algorithm: str, nbytes: int) -> float | None:
        if algorithm.partition(":")[0] not in names():
            return None
        ends = (args.ranks, place.ranks)
        wanted, known = (predict(Sample(algorithm, nbytes, n, min(per_node, n), 0.0, ""), machine) for n in ends)
        return wanted / known if known else None

    return ratio


def _table(workload, advice, share: float) -> Table:
    from .advising import steps_needed

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("", "algorithm", "codec"):
        table.add_column(name, no_wrap=True)
    for name in ("error", "buckets of", "are", "exposed", "95 %", "step", "steps", "unmeasured"):
        table.add_column(name, justify="right", no_wrap=True)
    for option in advice.options[:SHOWN]:
        exposed = option.exposed
        table.add_row(
            "*" if option is advice.best else "", option.way.algorithm, option.way.codec, f"{option.error:.1e}",
            _cap(option), str(len(option.sizes)), _time(exposed.value),
            f"{_time(exposed.low)} .. {_time(exposed.high)}",
            _time(option.seconds + workload.other_seconds), str(steps_needed(workload, exposed.value, share)),
            str(len(option.outside) or ""),
        )  # fmt: skip
    return table


def _cap(option) -> str:
    return "all" if len(option.sizes) == 1 else format_bytes(option.bucket_bytes)


def _words(workload, ways, advice, args: argparse.Namespace, warning: str):
    """The answer, its rival, what would change it, and where it stands on nothing measured."""
    from .advising import change_by_computing, change_by_error, steps_needed

    best, share = advice.best, args.exposed / 100
    steps = steps_needed(workload, best.exposed.value, share)
    least, most = (steps_needed(workload, end, share) for end in best.exposed[1:])
    step = workload.compute_seconds + workload.other_seconds
    iteration = _interval(best.exposed, steps * step)
    yield (
        f"Advice: {best}, buckets of {_cap(best)} ({len(best.sizes)})"
        + (f", gradients of {steps} steps accumulated ({least} to {most})" if steps > 1 else ", no accumulation")
        + f": {_time(iteration[0])} an iteration ({_time(iteration[1])} .. {_time(iteration[2])}), of which "
        f"{best.exposed.value / iteration[0]:.1%} is exposed communication."
    )
    yield (
        f"  Without overlap, in one bucket behind the backward pass, a step would take "
        f"{_time(advice.blocking + workload.other_seconds)} instead of {_time(best.seconds + workload.other_seconds)}."
    )
    if steps > 1:
        yield f"  Accumulation makes the batch {steps} times as large; whether training bears that is not known here."
    if advice.runner_up:
        yield f"Runner-up: {_rival(best, advice.runner_up, workload)}"
    yield "What would change the answer:"
    changes = change_by_computing(workload, ways, args.error_budget, advice)
    for seconds, option in changes:
        word = "shorter" if seconds < workload.compute_seconds else "longer"
        yield f"  a backward pass of {_time(seconds)} or {word}: {option}, buckets of {_cap(option)}."
    if not changes:
        yield "  no backward pass from a sixteenth to 16 times as long."
    if option := change_by_error(workload, ways, args.error_budget, advice):
        yield (
            f"  an error budget of {option.error:.2g}: {option}, buckets of {_cap(option)}, "
            f"{_time(option.seconds + workload.other_seconds)} a step."
        )
    elif all(way.codec == NONE for way in ways):
        yield "  codecs, perhaps: none was measured (bench --codecs)."
    else:
        yield "  no larger error budget, with the codecs that were measured."
    if best.outside:
        low, *_, high = ways[best.way].sizes * 2
        yield (
            f"OUTSIDE THE MEASURED RANGE: {len(best.outside)} of {len(best.sizes)} buckets are of "
            f"{format_bytes(min(best.outside))} to {format_bytes(max(best.outside))}, measured was "
            f"{format_bytes(low)} to {format_bytes(high)}. Smaller ones are taken to be as slow as the smallest, "
            "larger ones in proportion; bench --sizes with these makes it sure."
        )
    if not warning:
        yield "Try it: " + _command(args, best, workload)


def _rival(best, other, workload) -> str:
    from ..decisions.table import TIE

    factor = (other.seconds + workload.other_seconds) / (best.seconds + workload.other_seconds)
    apart = other.exposed.low > best.exposed.high or other.exposed.high < best.exposed.low
    verdict = "the intervals are apart" if apart else "the intervals overlap: it may as well be the better one"
    if factor <= 1 + TIE:
        verdict = "a tie"
    return f"{other}, buckets of {_cap(other)}: {factor:.2f} x the step's time; {verdict}."


def _interval(exposed, computing: float) -> tuple[float, float, float]:
    """An iteration's seconds, and its interval."""
    return tuple(computing + part for part in exposed)


def _command(args: argparse.Namespace, option, workload) -> str:
    """How the advice is measured."""
    model = args.model or args.layers
    if model is None:
        return "overlap takes --model; give --model or --layers instead of --parameters for a command to copy."
    return (
        f"mpirun -n RANKS python -m mpi_allreduce overlap --model {model} "
        f"--compute-seconds {workload.compute_seconds:g} --algorithms {option.way.algorithm} "
        f"--codecs {option.way.codec} --modes test --bucket-bytes {option.bucket_bytes}"
    )


def _time(seconds: float) -> str:
    return f"{seconds:.4g} s" if seconds >= 10 else f"{seconds * 1e3:.4g} ms"
