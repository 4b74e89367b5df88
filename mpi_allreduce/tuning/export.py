"""Rules for an MPI library out of launches that forced its algorithms."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isqrt
from statistics import median

from ..decisions.table import BELOW, TIE, Rule, Situation, Timing
from .training import Launch
from .vendors import OWN, Clause, Forcing, Vendor

__all__ = ["Decision", "Export", "clauses", "export"]

DEFAULT = ""


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
        How many times faster than that: the median over sweeps, and the ends of the interval.  (1, 1, 1) where the
        rules leave the library its default.
    sure : bool
        Whether it was faster in every sweep, and is proved to have run.
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
    sweeps : int
    ineffective : tuple of str
        Forcings with the default's bits everywhere: they did nothing, or only add in the same order.
    """

    situation: Situation
    decisions: tuple[Decision, ...]
    sweeps: int
    ineffective: tuple[str, ...]

    @property
    def gains(self) -> bool:
        """Whether something is surely faster than the default."""
        return any(decision.sure for decision in self.decisions)


def export(launches: Iterable[Launch], vendor: Vendor) -> Export:
    """Decide for each size; the default is left only for what is surely faster, and proved to have run.

    The first launches of all forcings are one sweep, the second ones another, and so on; times are compared within
    sweeps only.  A forcing is proved at a size if MPI_Allreduce's bits there, at the nearest fingerprints on both
    sides, are not the default's.

    Raises
    ------
    ValueError
        If the launches are of another library, of several situations, too few ranks, or nothing was forced.
    """
    groups = _groups(launches, vendor)
    situation = next(iter(groups.values()))[0].situation
    count = min(len(found) for found in groups.values())
    names = [name for name in groups if name != DEFAULT]
    sizes = sorted(set.intersection(*(set(run.timings) for found in groups.values() for run in found)))
    if not sizes:
        raise ValueError("export: no size was measured in all launches; give records of one sweep")
    decisions: list[Decision] = []
    for size in sizes:
        timings = {
            str(k): {name: runs[k].timings[size]["vendor"] for name, runs in groups.items()} for k in range(count)
        }
        proved = {n for n in names if all(_differ(groups[n][k], groups[DEFAULT][k], size) for k in range(count))}
        previous = str(decisions[-1].forcing) if decisions else ""
        decisions.append(_decide(Rule(size, timings), proved, previous, vendor))
    same = tuple(name for name in names if not any(_differ(groups[name][0], groups[DEFAULT][0], s) for s in sizes))
    return Export(situation, tuple(decisions), count, same)


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
            run = Launch(launch.identity, launch.situation, launch.environment, timings)
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


def _decide(rule: Rule, proved: set[str], previous: str, vendor: Vendor) -> Decision:
    default = median(timings[DEFAULT][0] for timings in rule.launches.values())
    ranking = [name for name, _ in rule.ranking() if name != DEFAULT]
    faster = {name for name in ranking if _surely(rule, name, DEFAULT)} - {OWN}
    if winners := faster & proved:
        name = _only(rule, winners).chosen(previous).algorithm
        return Decision(rule.bytes, Forcing.parse(name), default, _factor(rule, name), True, "")
    unproved = [name for name in ranking if name in faster]
    note = f"{unproved[0]} seems faster, but has the default's bits: not proved" if unproved else ""
    if vendor.keeps and not (OWN in proved and _surely(rule, DEFAULT, OWN)):
        return Decision(rule.bytes, Forcing(OWN), default, (1.0, 1.0, 1.0), False, note)
    # Rules cannot say "as without rules" here, so the next best has to be named.
    name = ranking[0]
    note = (
        "SLOWER than the default, which rules cannot name" if _surely(rule, DEFAULT, name) else "the default's stand-in"
    )
    return Decision(rule.bytes, Forcing.parse(name), default, _factor(rule, name), False, note)


def _only(rule: Rule, names: set[str]) -> Rule:
    return Rule(rule.bytes, {k: {n: t for n, t in ts.items() if n in names} for k, ts in rule.launches.items()})


def _surely(rule: Rule, fast: str, slow: str) -> bool:
    """Whether the one is faster than the other by more than a tie, and in every sweep."""
    pair = replace(_only(rule, {fast, slow}), algorithm=fast)
    return dict(pair.ranking()).get(slow, 1) > 1 + TIE and pair.is_sure()


def _factor(rule: Rule, name: str) -> tuple[float, float, float]:
    """The default's time in those of ``name``; the interval holds what is possible in any sweep."""
    pairs: Sequence[tuple[Timing, Timing]] = [(t[DEFAULT], t[name]) for t in rule.launches.values()]
    return (
        median(before[0] / after[0] for before, after in pairs),
        min(before[1] / after[2] for before, after in pairs),
        max(before[2] / after[1] for before, after in pairs),
    )


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
