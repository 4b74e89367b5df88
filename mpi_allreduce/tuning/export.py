"""Rules for an MPI library out of launches that forced its algorithms."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isqrt
from statistics import median

from ..decisions.table import BELOW, TIE, Rule, Situation, Timing
from .training import Launch
from .vendors import OWN, Clause, Forcing, Vendor

__all__ = ["LAUNCHES", "Decision", "Export", "clauses", "export"]

DEFAULT = ""
LAUNCHES = 3  # of two and two, all of the one are below all of the other by chance once in six times


@dataclass(frozen=True)
class Decision:
    """What the rules say at one measured size.

    Attributes
    ----------
    bytes : int
    forcing : Forcing
    default : float
        Seconds without rules; the median over launches.
    factor : tuple of float
        How many times faster than that, and the ends of the interval.  (1, 1, 1) where the rules leave the library its
        default.
    sure : bool
        Whether all its launches were faster, and it is proved to have run.
    note : str
    """

    bytes: int
    forcing: Forcing
    default: float
    factor: tuple[float, float, float]
    sure: bool
    note: str


@dataclass(frozen=True)
class Export:
    """Decisions, sizes ascending, and what they rest on.

    Attributes
    ----------
    situation : Situation
    decisions : tuple of Decision
    launches : int
        Of each forcing, at least.
    ineffective : tuple of str
        Forcings with the default's bits everywhere: they did nothing, or only add in the same order.
    """

    situation: Situation
    decisions: tuple[Decision, ...]
    launches: int
    ineffective: tuple[str, ...]

    @property
    def gains(self) -> bool:
        """Whether something is surely faster than the default."""
        return any(decision.sure for decision in self.decisions)


def export(launches: Iterable[Launch], vendor: Vendor) -> Export:
    """Decide for each size; the default is left only for what is surely faster, and proved to have run.

    Forcings are compared between launches, which differ by more than a launch's own intervals: so the launch is the
    unit, and faster means that all launches of it, three at least, are below all launches of the default.  A forcing
    is proved at a size if MPI_Allreduce's bits there, at the nearest fingerprints on both sides, are not the default's.

    Raises
    ------
    ValueError
        If the launches are of another library, of several situations, too few ranks, or nothing was forced.
    """
    groups = _groups(launches, vendor)
    default = groups[DEFAULT]
    names = [name for name in groups if name != DEFAULT]
    sizes = sorted(set.intersection(*(set(run.timings) for runs in groups.values() for run in runs)))
    if not sizes:
        raise ValueError("export: no size was measured in all launches; give records of one sweep")
    enough = {name for name in names if min(len(groups[name]), len(default)) >= LAUNCHES}
    decisions: list[Decision] = []
    for size in sizes:
        pooled = {name: _pooled([run.timings[size]["vendor"] for run in runs]) for name, runs in groups.items()}
        proved = {name for name in names if all(_differ(a, b, size) for a in groups[name] for b in default)}
        previous = str(decisions[-1].forcing) if decisions else ""
        decisions.append(_decide(Rule(size, {"all": pooled}), proved, enough, previous, vendor))
    same = tuple(name for name in names if not any(_differ(groups[name][0], default[0], size) for size in sizes))
    return Export(default[0].situation, tuple(decisions), min(map(len, groups.values())), same)


def _pooled(timings: Sequence[Timing]) -> Timing:
    """Of all launches of one forcing: the median, and the ends of what any of them holds for possible."""
    medians, lows, highs = zip(*timings, strict=True)
    return median(medians), min(lows), max(highs)


def _groups(launches: Iterable[Launch], vendor: Vendor) -> dict[str, list[Launch]]:
    """Launches by what they forced, in the order in which they were started."""
    groups: dict[str, list[Launch]] = {}
    found = {launch.identity: launch for launch in launches}  # the same record twice is one
    for launch in sorted(found.values(), key=lambda launch: launch.identity):
        library = launch.situation.library
        if not library.startswith(vendor.libraries):
            raise ValueError(f"export: {launch.identity} is of {library}, not of {' or '.join(vendor.libraries)}")
        try:
            forcing = vendor.forcing(launch.environment.get("variables", {}))
        except ValueError as error:
            raise ValueError(f"export: {launch.identity}: {error}; leave this record out") from None
        timings = {size: timings for size, timings in launch.timings.items() if "vendor" in timings}
        if timings:
            run = replace(launch, timings=timings)
            groups.setdefault(str(forcing) if forcing else DEFAULT, []).append(run)
    shapes = {run.situation for runs in groups.values() for run in runs}
    if len(shapes) > 1:
        raise ValueError(f"export: records of several situations: {'; '.join(sorted(map(str, shapes)))}; give one's")
    if DEFAULT not in groups or len(groups) == 1:
        missing = "launch that forced an algorithm" if DEFAULT in groups else "launch without a forced algorithm"
        raise ValueError(f"export: no {missing} of the MPI library in the records; make them with jobs/tune_vendor or "
                         "jobs/vendor_sweep.sbatch")  # fmt: skip
    if next(iter(shapes)).ranks < 3:
        raise ValueError("export: 2 ranks add in one order only, so that nothing proves what ran; give records of 3 "
                         "ranks or more")  # fmt: skip
    return groups


def _differ(one: Launch, other: Launch, size: int) -> bool:
    """Whether the bits of MPI_Allreduce differ, at the nearest sizes with fingerprints on both sides."""
    a, b = (run.environment["vendor_fingerprint"] for run in (one, other))
    known = sorted(int(s) for s in a.keys() & b.keys())
    near = {max((s for s in known if s <= size), default=None), min((s for s in known if s >= size), default=None)}
    return bool(known) and all(a[str(s)] != b[str(s)] for s in near - {None})


def _decide(rule: Rule, proved: set[str], enough: set[str], previous: str, vendor: Vendor) -> Decision:
    times = rule.launches["all"]
    seconds = times[DEFAULT][0]
    ranking = [name for name, _ in rule.ranking() if name != DEFAULT]
    faster = [name for name in ranking if name != OWN and _surely(times, name, DEFAULT)]
    if winners := {name: times[name] for name in faster if name in proved & enough}:
        name = Rule(rule.bytes, {"all": winners}).chosen(previous).algorithm
        return Decision(rule.bytes, Forcing.parse(name), seconds, _factor(times, name), True, "")
    reasons = [
        f"{name} seems faster: {'too few launches' if name in proved else 'same bits, no proof'}" for name in faster
    ]
    note = reasons[0] if reasons else ""
    if vendor.keeps and not (OWN in proved and _surely(times, DEFAULT, OWN)):
        return Decision(rule.bytes, Forcing(OWN), seconds, (1.0, 1.0, 1.0), False, note)
    # Rules cannot say "as without rules" here, so the next best has to be named.
    name = ranking[0]
    note = (
        "SLOWER than the default, which rules cannot name"
        if _surely(times, DEFAULT, name)
        else "the default's stand-in"
    )
    return Decision(rule.bytes, Forcing.parse(name), seconds, _factor(times, name), False, note)


def _surely(times: Mapping[str, Timing], fast: str, slow: str) -> bool:
    """Whether the one is faster than the other by more than a tie, all launches of the one than all of the other."""
    if fast not in times or slow not in times:
        return False
    pair = Rule(0, {"all": {fast: times[fast], slow: times[slow]}}, fast)
    return dict(pair.ranking())[slow] > 1 + TIE and pair.is_sure()


def _factor(times: Mapping[str, Timing], name: str) -> tuple[float, float, float]:
    """The default's time in those of ``name``, and the ends of what any two launches hold for possible."""
    before, after = times[DEFAULT], times[name]
    return before[0] / after[0], before[1] / after[2], before[2] / after[1]


def clauses(decisions: Sequence[Decision], vendor: Vendor) -> tuple[Clause, ...]:
    """From 0 without gaps; between two measured sizes the nearer one's choice (by their ratio).

    Sizes far below the smallest measured one stay with the default where the library can be told so.
    """
    starts = [(0, decisions[0].forcing)]
    if vendor.keeps and (low := decisions[0].bytes // BELOW):
        starts = [(0, Forcing(OWN)), (low, decisions[0].forcing)]
    for before, after in pairwise(decisions):
        starts.append((isqrt(before.bytes * after.bytes) + 1, after.forcing))
    merged = [start for i, start in enumerate(starts) if i == 0 or start[1] != starts[i - 1][1]]
    ends = [first - 1 for first, _ in merged[1:]] + [None]
    return tuple(Clause(first, last, forcing) for (first, forcing), last in zip(merged, ends, strict=True))
