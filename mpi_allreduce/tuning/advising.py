"""Which algorithm, codec, bucket size and accumulation, for one model on one machine.  No MPI."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from ..codecs import NONE
from ..decisions.table import TIE
from ..overlap.buckets import by_bytes
from ..overlap.measures import ideal_end
from .curves import Curve, Way
from .elementary import Estimate

__all__ = [
    "Advice", "Option", "Workload", "advise", "change_by_computing", "change_by_error", "even", "scaled",
    "steps_needed",
]  # fmt: skip

DRAWS = 300
SEED = 1
ITEMSIZE = 4
SMALLEST_CAP = 64 << 10
FACTORS = [2 ** (i / 4) for i in range(1, 17)]  # of the computation's length, in search of another answer

Curves = Mapping[Way, Curve]


@dataclass(frozen=True)
class Workload:
    """One iteration of training.

    Attributes
    ----------
    counts : dict of str to int
        Numbers of each parameter, in the order of the forward pass.
    compute_seconds : float
        Of one backward pass; a parameter's gradient takes time by its numbers, the last parameter's comes first.
    other_seconds : float
        Of what else each step has and no communication overlaps with (the forward pass, loading).
    """

    counts: dict[str, int]
    compute_seconds: float
    other_seconds: float = 0.0

    @property
    def bytes(self) -> int:
        """Of all gradients, as float32."""
        return sum(self.counts.values()) * ITEMSIZE

    def buckets(self, cap: int) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of each bucket, and when its gradients are complete, in seconds from the backward pass's beginning."""
        buckets = by_bytes(self.counts, list(reversed(self.counts)), ITEMSIZE, limit=cap, first=cap)
        sizes = np.array([bucket.count * ITEMSIZE for bucket in buckets])
        return sizes, self.compute_seconds * np.cumsum(sizes) / self.bytes

    def caps(self) -> list[int]:
        """Caps of buckets worth a thought: doubling from 64 KiB, up to one bucket for all; one for each outcome."""
        caps, seen = [], set()
        cap = SMALLEST_CAP
        while cap < 2 * self.bytes or not caps:
            outcome = tuple(self.buckets(cap)[0])
            if outcome not in seen:
                caps.append(cap)
                seen.add(outcome)
            cap *= 2
        return caps


@dataclass(frozen=True)
class Option:
    """One way with one size of buckets.

    Attributes
    ----------
    way : Way
    bucket_bytes : int
        The cap.
    sizes : tuple of int
        Bytes of each bucket.
    seconds : float
        From the beginning of the backward pass to the end of the last bucket.
    exposed : Estimate
        Seconds of it behind the backward pass.
    error : float
        Of one reduction, relative (L2).
    outside : tuple of int
        Buckets of sizes that were not measured, in bytes.
    """

    way: Way
    bucket_bytes: int
    sizes: tuple[int, ...]
    seconds: float
    exposed: Estimate
    error: float
    outside: tuple[int, ...]

    def __str__(self) -> str:
        codec = "" if self.way.codec == NONE else f" with {self.way.codec}"
        return f"{self.way.algorithm}{codec}"


@dataclass(frozen=True)
class Advice:
    """The answer, and what else there is.

    Attributes
    ----------
    best : Option
    runner_up : Option or None
        The fastest other way.
    options : list of Option
        The best size of buckets of each way that is allowed, fastest first.
    blocking : float
        Seconds of the backward pass, and then the answer's way with everything in one bucket.
    """

    best: Option
    runner_up: Option | None
    options: list[Option]
    blocking: float


def advise(workload: Workload, ways: Curves, error_budget: float = 0.0) -> Advice:
    """Compare all ways whose error is within the budget, with all sizes of buckets.

    A bucket starts when its gradients are complete and the one before has ended, and takes what its size took in the
    benchmark: as if an accelerator computed and communication moved on by itself.  What is within 2 % of the fastest
    counts as good: among such, no codec is better than one, measured sizes than others, our schedules than
    MPI_Iallreduce, which hardly moves between calls in most libraries, and fewer buckets than more.

    Raises
    ------
    ValueError
        If no way is allowed.
    """
    allowed = {way: curve for way, curve in ways.items() if way.codec == NONE or curve.error <= error_budget}
    if not allowed:
        least = min((curve.error for curve in ways.values()), default=0.0)
        raise ValueError(f"advise: nothing measured is within an error of {error_budget:g}; the least is {least:.2g}")
    caps = workload.caps()
    every = [_option(workload, way, curve, cap) for way, curve in allowed.items() for cap in caps]
    best = _preferred(every)
    best_of_way = [best] + [_preferred(o for o in every if o.way == way) for way in allowed if way != best.way]
    shown = [_with_interval(workload, option, allowed[option.way]) for option in best_of_way]
    best, *others = shown
    others.sort(key=lambda option: option.seconds)
    whole = _option(workload, best.way, allowed[best.way], workload.bytes)
    return Advice(
        best=best,
        runner_up=next(iter(others), None),
        options=sorted(shown, key=lambda option: option.seconds),
        blocking=workload.compute_seconds + whole.exposed.value,
    )


def _option(workload: Workload, way: Way, curve: Curve, cap: int) -> Option:
    sizes, ready = workload.buckets(cap)
    end = ideal_end(ready.tolist(), curve.interpolate(curve.medians(), sizes).tolist())
    exposed = end - workload.compute_seconds
    outside = tuple(curve.outside(sizes.tolist()))
    return Option(way, cap, tuple(sizes.tolist()), end, Estimate(exposed, exposed, exposed), curve.error, outside)


def _preferred(options: Iterable[Option]) -> Option:
    options = list(options)
    limit = min(option.seconds for option in options) * (1 + TIE)
    good = [option for option in options if option.seconds <= limit]
    return min(good, key=_cost_of_doubt)


def _cost_of_doubt(option: Option) -> tuple[bool, bool, bool, int, float]:
    """Among equals: exact, measured, moved on by our own rounds, few buckets, fast."""
    way = option.way
    return way.codec != NONE, bool(option.outside), way.algorithm == "vendor", len(option.sizes), option.seconds


def _with_interval(workload: Workload, option: Option, curve: Curve) -> Option:
    """95 % of launches and visits drawn with replacement."""
    random = np.random.default_rng(SEED)
    sizes, ready = workload.buckets(option.bucket_bytes)
    ends = [ideal_end(ready, curve.interpolate(curve.drawn(random), sizes)) for _ in range(DRAWS)]
    low, high = np.quantile(ends, [0.025, 0.975]) - workload.compute_seconds
    return replace(option, exposed=Estimate(option.exposed.value, float(low), float(high)))


def steps_needed(workload: Workload, exposed: float, share: float) -> int:
    """Backward passes between two reductions, so that no more than this share of the time is exposed communication."""
    step = workload.compute_seconds + workload.other_seconds
    return max(ceil(exposed * (1 - share) / (share * step) - 1e-9), 1)


def change_by_computing(
    workload: Workload, ways: Curves, error_budget: float, advice: Advice
) -> list[tuple[float, Option]]:
    """The nearest shorter and longer backward pass, in seconds, with another answer that is better by more than a tie.

    Searched up to 16 times shorter and longer, in steps of a fourth of a doubling.
    """
    changes = []
    for factors in ([1 / f for f in FACTORS], FACTORS):
        for factor in factors:
            other = replace(workload, compute_seconds=workload.compute_seconds * factor)
            answer = _fastest(other, ways, error_budget)
            kept = _option(other, advice.best.way, ways[advice.best.way], advice.best.bucket_bytes)
            if answer.seconds * (1 + TIE) < kept.seconds:
                changes.append((other.compute_seconds, answer))
                break
    return changes


def _fastest(workload: Workload, ways: Curves, error_budget: float) -> Option:
    allowed = {way: curve for way, curve in ways.items() if way.codec == NONE or curve.error <= error_budget}
    return _preferred(_option(workload, way, curve, cap) for way, curve in allowed.items() for cap in workload.caps())


def change_by_error(workload: Workload, ways: Curves, error_budget: float, advice: Advice) -> Option | None:
    """The answer of the smallest larger budget of which something is better by more than a tie."""
    beyond = sorted({c.error for way, c in ways.items() if way.codec != NONE and c.error > error_budget})
    for budget in beyond:
        answer = _fastest(workload, ways, budget)
        if answer.seconds * (1 + TIE) < advice.best.seconds:
            return answer
    return None


def even(parameters: int, layers: int = 100) -> dict[str, int]:
    """So many numbers as equal layers, where nothing else is known."""
    edges = np.linspace(0, parameters, min(layers, parameters) + 1).astype(int)
    return {f"layer{i}": int(count) for i, count in enumerate(np.diff(edges))}


def scaled(ways: Curves, ratio: Callable[[str, int], float | None]) -> dict[Way, Curve]:
    """The curves at another number of ranks; ``ratio(algorithm, bytes)`` is a factor, or None where none is known."""
    found = {}
    for way, curve in ways.items():
        factors = {size: ratio(way.algorithm, size) for size in curve.sizes}
        if None not in factors.values():
            found[way] = curve.at(factors)
    return found
