"""Self-consistent performance guidelines: what MPI_Allreduce should never be slower than, checked on records.

An MPI library that is slower than its own other collectives put together, than a schedule of ordinary messages, or than
itself on more data, chose the wrong algorithm, and its user can choose a better one.

J. L. Träff, W. Gropp, R. Thakur: Self-consistent MPI performance guidelines.  IEEE TPDS 21 (2010).
S. Hunold, A. Carpen-Amarie: Autotuning MPI collectives using performance guidelines.  HPC Asia 2018.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from statistics import median

from ..bench.statistics import ENOUGH, median_interval
from ..decisions.table import TIE, Rule, Situation, Timing
from ..units import format_bytes
from .training import launches

__all__ = [
    "GUIDELINES",
    "Bound",
    "Comparison",
    "Report",
    "Scope",
    "Unmeasured",
    "advice",
    "check",
    "knob",
    "read_scopes",
]

CHECKED = "vendor"
OTHERS = ("auto", "nccl")  # neither the MPI library's nor a schedule of ours


@dataclass(frozen=True)
class Scope:
    """Where times are compared with each other: all but algorithm and size."""

    situation: Situation
    dtype: str
    op: str
    memory: str
    mode: str
    data: str
    in_place: bool

    def __str__(self) -> str:
        place = "in place" if self.in_place else "out of place"
        return f"{self.situation}; {self.op} of {self.dtype}, {self.memory}, {self.mode}, {place}, data {self.data}"


Sizes = dict[int, Rule]
"""What was measured, by bytes."""


@dataclass(frozen=True)
class Bound:
    """What a time should not exceed: ``times`` that of ``algorithm`` on ``bytes``."""

    algorithm: str
    bytes: int
    times: int = 1

    def beside(self, nbytes: int) -> str:
        """Its name, next to a time for ``nbytes``."""
        at = "" if self.bytes == nbytes else f" at {format_bytes(self.bytes)}"
        return f"{f'{self.times} x ' if self.times > 1 else ''}{self.algorithm}{at}"


@dataclass(frozen=True)
class Guideline:
    """One of the guidelines.

    Attributes
    ----------
    name, text : str
    bounds : callable
        ``bounds(nbytes, sizes)``: all that MPI_Allreduce on ``nbytes`` should not be slower than.
    needs : str
        What must have been recorded beside MPI_Allreduce.
    instead : str
        How a user gets the bound's time, with its ``{algorithm}`` and ``{size}``.
    across : bool
        Whether it compares sizes: one at the end of them has nothing to be compared with.
    """

    name: str
    text: str
    bounds: Callable[[int, Sizes], list[Bound]]
    needs: str
    instead: str = 'algorithm="{algorithm}"'
    across: bool = False


def _other_call(name: str, nbytes: int, sizes: Sizes) -> list[Bound]:
    return [Bound(name, nbytes)]


def _ours(nbytes: int, sizes: Sizes) -> list[Bound]:
    names = {name for timings in sizes[nbytes].launches.values() for name in timings}
    return [Bound(n, nbytes) for n in sorted(names) if not n.startswith("vendor") and n not in OTHERS]


def _larger(nbytes: int, sizes: Sizes) -> list[Bound]:
    return [Bound(CHECKED, size) for size in sizes if size > nbytes]


def _parts(nbytes: int, sizes: Sizes) -> list[Bound]:
    return [Bound(CHECKED, size, nbytes // size) for size in sizes if 0 < size < nbytes and nbytes % size == 0]


GUIDELINES = (
    Guideline("G1", "Allreduce <= Reduce + Bcast", partial(_other_call, "vendor_reduce_bcast"), "vendor_reduce_bcast"),
    Guideline(
        "G2",
        "Allreduce <= Reduce_scatter + Allgather",
        partial(_other_call, "vendor_reduce_scatter_allgather"),
        "vendor_reduce_scatter_allgather",
    ),
    Guideline("G3", "Allreduce <= our best algorithm", _ours, "any algorithm of ours"),
    Guideline(
        "G4", "Allreduce(n) <= Allreduce(m), n < m", _larger, "vendor on more bytes", "pad to {size}", across=True
    ),
    Guideline(
        "G5", "Allreduce(k n) <= k Allreduce(n)", _parts, "vendor on a k-th of it", "calls of {size}", across=True
    ),
)


@dataclass(frozen=True)
class Comparison:
    """MPI_Allreduce beside one bound.

    Attributes
    ----------
    guideline : Guideline
    bytes : int
    bound : Bound
        Of several the one that is exceeded most clearly.
    factor, low, high : float
        MPI_Allreduce's time divided by the bound, and the ends of its 95 % interval: over launches, of six or more;
        of fewer, what the intervals over visits leave possible in any of them.
    launches : int
    rivals : tuple of (Bound, float)
        All bounds that are exceeded by more than a tie, with their factors, largest first.
    tie : float
        What is no difference.
    """

    guideline: Guideline
    bytes: int
    bound: Bound
    factor: float
    low: float
    high: float
    launches: int
    rivals: tuple[tuple[Bound, float], ...] = ()
    tie: float = TIE

    @property
    def violated(self) -> bool:
        """Whether the bound is exceeded by more than a tie."""
        return self.factor > 1 + self.tie

    @property
    def sure(self) -> bool:
        """Whether the whole interval says so."""
        return self.low > 1 + self.tie

    @property
    def undecided(self) -> bool:
        """Whether the bound seems to be kept, and the interval does not exclude that it is exceeded."""
        return not self.violated and self.high > 1 + self.tie


@dataclass(frozen=True)
class Unmeasured:
    """Comparisons that a guideline asks for and records do not allow.

    Attributes
    ----------
    guideline : Guideline
    sizes : tuple of int
        In bytes.
    needs : str
        What was not recorded there.
    """

    guideline: Guideline
    sizes: tuple[int, ...]
    needs: str


@dataclass(frozen=True)
class Report:
    """What came out in one scope.

    Attributes
    ----------
    scope : Scope
    sizes : dict of int to Rule
    comparisons : tuple of Comparison
    unmeasured : tuple of Unmeasured
    """

    scope: Scope
    sizes: Sizes
    comparisons: tuple[Comparison, ...]
    unmeasured: tuple[Unmeasured, ...]


def read_scopes(paths: Iterable[Path]) -> dict[Scope, Sizes]:
    """All that can be compared, by scope and size.

    Left out are skewed launches, such that forced an algorithm of the MPI library, codecs, and wrong results.

    Raises
    ------
    OSError, ValueError
        If a file is no record.
    """
    scopes: dict[Scope, Sizes] = {}
    for path in paths:
        for launch in launches(path):
            for row in [] if launch.forced else launch.rows:
                if "median" not in row or row["skew"] != "none" or row["codec"] != "none" or row["wrong"]:
                    continue
                facts = (row[key] for key in ("dtype", "op", "memory", "mode", "data", "in_place"))
                sizes = scopes.setdefault(Scope(launch.situation, *facts), {})
                rule = sizes.setdefault(row["bytes"], Rule(row["bytes"], {}))
                rule.launches.setdefault(launch.identity, {})[row["algorithm"]] = _timing(row)
    return {scope: dict(sorted(sizes.items())) for scope, sizes in scopes.items()}


def _timing(row: dict[str, object]) -> Timing:
    """The range of fewer than six visits bounds nothing."""
    ends = (row["low"], row["high"]) if row["visits"] >= ENOUGH else (0.0, inf)
    return (row["median"], *ends)


def check(scope: Scope, sizes: Sizes, tie: float = TIE) -> Report:
    """All guidelines at all sizes of one scope."""
    comparisons, unmeasured = [], []
    for guideline in GUIDELINES:
        found, missing = [], {}
        for nbytes in sizes:
            comparison = _compared(guideline, nbytes, sizes, tie)
            if comparison:
                found.append(comparison)
            elif not any(CHECKED in timings for timings in sizes[nbytes].launches.values()):
                missing.setdefault(CHECKED, []).append(nbytes)
            else:
                missing.setdefault(guideline.needs, []).append(nbytes)
        if found and guideline.across:
            missing.pop(guideline.needs, None)
        comparisons += found
        unmeasured += [Unmeasured(guideline, tuple(at), needs) for needs, at in missing.items()]
    return Report(scope, sizes, tuple(comparisons), tuple(unmeasured))


def _compared(guideline: Guideline, nbytes: int, sizes: Sizes, tie: float) -> Comparison | None:
    """With the bound that is exceeded most clearly; None if there is none in a launch with MPI_Allreduce."""
    beside = [
        Comparison(guideline, nbytes, bound, *_ratio(pairs), len(pairs), tie=tie)
        for bound in guideline.bounds(nbytes, sizes)
        if (pairs := list(_pairs(nbytes, bound, sizes)))
    ]
    if not beside:
        return None
    worst = max(beside, key=lambda c: (c.sure, c.factor))
    rivals = sorted(((c.bound, c.factor) for c in beside if c.violated), key=lambda item: -item[1])
    return replace(worst, rivals=tuple(rivals))


def _pairs(nbytes: int, bound: Bound, sizes: Sizes) -> Iterator[tuple[Timing, Timing]]:
    """MPI_Allreduce's time and the bound, of each launch that has both."""
    others = sizes[bound.bytes].launches
    for launch, timings in sizes[nbytes].launches.items():
        other = others.get(launch, {}).get(bound.algorithm)
        if CHECKED in timings and other:
            yield timings[CHECKED], tuple(bound.times * seconds for seconds in other)


def _ratio(pairs: Sequence[tuple[Timing, Timing]]) -> tuple[float, float, float]:
    """Factor, low and high: times are compared within launches, as the machine is another from launch to launch."""
    ratios = sorted(time[0] / bound[0] for time, bound in pairs)
    if len(ratios) >= ENOUGH:
        low, high = median_interval(len(ratios))
        return median(ratios), ratios[low], ratios[high]
    low = min(time[1] / bound[2] for time, bound in pairs)
    high = max(time[2] / bound[1] if bound[1] else inf for time, bound in pairs)
    return median(ratios), low, high


def advice(comparison: Comparison, report: Report) -> str:
    """What the user can do about a violation: what gains most, of the bound and the fastest that was measured."""
    bound, guideline = comparison.bound, comparison.guideline
    ranking = [item for item in report.sizes[comparison.bytes].ranking() if item[0] != "auto"]
    times = dict(ranking)
    gain = times[CHECKED] / ranking[0][1] if CHECKED in times else 0.0
    if gain >= comparison.factor:
        return f'algorithm="{ranking[0][0]}", {gain:.2f} x faster'
    return guideline.instead.format(algorithm=bound.algorithm, size=format_bytes(bound.bytes))


KNOBS = {
    "Open MPI": "OMPI_MCA_coll_tuned_use_dynamic_rules=1 and OMPI_MCA_coll_tuned_allreduce_algorithm",
    "MPICH": "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM",
    "Intel MPI": "I_MPI_ADJUST_ALLREDUCE",
}
"""The variables that make a library choose another algorithm."""


def knob(scope: Scope) -> str | None:
    """The variable that makes the scope's library choose another algorithm; None if unknown."""
    return KNOBS.get(scope.situation.library.rpartition(" ")[0])
