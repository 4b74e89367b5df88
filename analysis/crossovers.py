"""From which size on one algorithm overtakes another, with the interval that launches, and visits in them, allow.

Usage: python analysis/crossovers.py results/FILE.h5... [-o FIGURE.svg]
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import matplotlib.pyplot as plt
import numpy as np
from drawing import COLOURS, Part, Table, figure, program, size_axis
from material import Launch, Material, Setup
from measures import units

from mpi_allreduce.bench.settings import Case
from mpi_allreduce.codecs import NONE
from mpi_allreduce.units import format_bytes

DRAWS = 1000
SEED = 1
Whole = tuple[list[Launch], list[str], list[int]]  # see _complete


@dataclass(frozen=True)
class Crossover:
    """Where ``above`` becomes faster than ``below``.

    Attributes
    ----------
    below, above : str
        The faster one at smaller and at larger sizes.
    size, low, high : float
        Bytes, and its 95 % interval: 0 below everything measured, infinite above.
    inside : float
        The share of redrawn samples in which they cross within the sizes measured.
    """

    below: str
    above: str
    size: float
    low: float
    high: float
    inside: float


def make(material: Material) -> Part:
    """A table and a figure for each setup in which anything crosses."""
    found = {setup: found for setup, launches in material.setups.items() if (found := crossovers(launches))}
    whole = {setup: _complete(material.setups[setup]) for setup in found}
    return Part(
        name="crossovers",
        title="Crossover sizes",
        how_to_read="Of all algorithms that are the fastest somewhere: the size from which on the second is faster "
        "than the first, interpolated between the sizes measured. Intervals are quantiles of 1000 samples redrawn with "
        "replacement: launches first, then visits within each. An arrow: the interval goes on beyond what was "
        "measured.",
        tables=tuple(table(setup, whole[setup], found[setup]) for setup in found),
        figures=tuple(draw(setup, whole[setup], found[setup]) for setup in found),
        missing="In no setup does one algorithm overtake another between two sizes.",
    )


def crossovers(launches: Sequence[Launch]) -> list[Crossover]:
    """Of all pairs of algorithms that are each the fastest of some size."""
    launches, names, sizes = _complete(launches)
    if len(names) < 2 or len(sizes) < 2:
        return []
    random = np.random.default_rng(SEED)
    measured = np.log([[[np.median(_visits(launch, n, s)) for s in sizes] for n in names] for launch in launches])
    drawn = np.log(_redrawn(launches, names, sizes, random))
    fastest = np.median(measured - measured.min(axis=1, keepdims=True), axis=0).argmin(axis=0)
    found = []
    for a, b in permutations(sorted(set(fastest.tolist())), 2):
        size = crossing(np.median(measured[:, b] - measured[:, a], axis=0), sizes)
        if not 0 < size < np.inf:
            continue
        draws = np.array([crossing(d, sizes) for d in np.median(drawn[:, :, b] - drawn[:, :, a], axis=1)])
        low, high = np.quantile(draws, [0.025, 0.975], method="inverted_cdf")
        inside = float(np.mean((draws > 0) & (draws < np.inf)))
        found.append(Crossover(names[a], names[b], size, float(low), float(high), inside))
    return sorted(_one_way(found), key=lambda crossover: crossover.size)


def _one_way(found: list[Crossover]) -> list[Crossover]:
    """Lines that cross twice give both orders; the one that more samples agree with stays."""
    best: dict[frozenset, Crossover] = {}
    for crossover in found:
        pair = frozenset((crossover.below, crossover.above))
        if pair not in best or best[pair].inside < crossover.inside:
            best[pair] = crossover
    return list(best.values())


def crossing(lead: np.ndarray, sizes: Sequence[int]) -> float:
    """The size that best divides those at which the first of two algorithms leads from those at which it does not.

    Parameters
    ----------
    lead : ndarray
        For each size, the logarithm of the second's time by the first's: positive where the first is faster.
    sizes : sequence of int

    Returns
    -------
    float
        Bytes; 0 if the second is ahead from the start, infinite if it never is.
    """
    sums = np.concatenate([[0.0], np.cumsum(lead)])
    cut = int(sums.argmax())  # so the last size before it has no negative lead, and the next one no positive
    if cut in (0, len(sizes)):
        return 0.0 if cut == 0 else np.inf
    before, behind = lead[cut - 1], lead[cut]
    where = before / (before - behind) if before > behind else 0.5
    return float(sizes[cut - 1] * (sizes[cut] / sizes[cut - 1]) ** where)


def _visits(launch: Launch, name: str, size: int) -> np.ndarray:
    return launch.visits[Case(name, size)]


def _complete(launches: Sequence[Launch]) -> tuple[list[Launch], list[str], list[int]]:
    """Launches that have all the cases of the fullest one, its algorithms and its sizes.

    ``auto`` is left out, being a choice among the others, and so is what was not timed at all of these sizes.
    """
    plain = [{(c.algorithm, c.bytes) for c in launch.visits if c.codec == NONE} for launch in launches]
    fullest = max(plain, key=len)
    sizes = sorted({size for _, size in fullest})
    names = sorted({name for name, _ in fullest if name != "auto" and all((name, size) in fullest for size in sizes)})
    wanted = {(name, size) for name in names for size in sizes}
    return [launch for launch, cases in zip(launches, plain, strict=True) if wanted <= cases], names, sizes


def _redrawn(launches: Sequence[Launch], names: list[str], sizes: list[int], random: np.random.Generator) -> np.ndarray:
    """Seconds [draw, launch, algorithm, size]: launches drawn with replacement, and visits within each."""
    inner = np.empty((DRAWS, len(launches), len(names), len(sizes)))
    for i, launch in enumerate(launches):
        for j, name in enumerate(names):
            for k, size in enumerate(sizes):
                visits = _visits(launch, name, size)
                inner[:, i, j, k] = np.median(random.choice(visits, (DRAWS, len(visits))), axis=1)
    rows, chosen = (random.integers(0, n, (DRAWS, len(launches))) for n in (DRAWS, len(launches)))
    return inner[rows, chosen]


def _bound(size: float, first: int, last: int) -> str:
    if 0 < size < np.inf:
        return format_bytes(round(size))
    return f"< {format_bytes(first)}" if size == 0 else f"> {format_bytes(last)}"


def table(setup: Setup, whole: Whole, found: list[Crossover]) -> Table:
    launches, _, (first, *_, last) = whole
    rows = tuple(
        (c.below, c.above, _bound(c.size, first, last), _bound(c.low, first, last), _bound(c.high, first, last),
         f"{c.inside:.0%}")
        for c in found
    )  # fmt: skip
    headers = ("faster below", "faster above", "from ", "95 %: from ", "to ", "crosses in ")
    return Table(f"{setup}; {units(launches)}", headers, rows)


def draw(setup: Setup, whole: Whole, found: list[Crossover]) -> plt.Figure:
    """One line for each pair."""
    launches, _, sizes = whole
    first, last = sizes[0], sizes[-1]
    made, (axes,) = figure(f"Crossovers: {setup}; {units(launches)}", 1.5 + 0.42 * len(found))
    for i, c in enumerate(found):
        low, high = (min(max(size, first), last) for size in (c.low, c.high))
        axes.plot([low, high], [i, i], color=COLOURS[0], linewidth=2)
        axes.plot(c.size, i, "o", color="black")
        for beyond, at, marker in ((c.low == 0, low, "<"), (c.high == np.inf, high, ">")):
            if beyond:
                axes.plot(at, i, marker, color=COLOURS[0], markersize=8)
    axes.set_yticks(range(len(found)), [f"{c.below}\n→ {c.above}" for c in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    size_axis(axes, sizes)
    axes.set_xlim(first / 1.5, last * 1.5)
    return made


if __name__ == "__main__":
    sys.exit(program(make, __doc__))
