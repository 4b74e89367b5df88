"""What follows from launches: times and ratios with intervals, the launch being the unit; pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from material import Launch, is_ours, label

from mpi_allreduce.bench import pool
from mpi_allreduce.bench.statistics import median_interval
from mpi_allreduce.bench.table import ENOUGH
from mpi_allreduce.codecs import NONE

__all__ = ["Ratio", "best_of_ours", "combined", "exact", "ratios", "units"]


def exact(rows: Iterable[dict]) -> list[dict]:
    """Rows without a codec."""
    return [row for row in rows if row["codec"] == NONE]


def combined(launches: Sequence[Launch]) -> list[dict]:
    """One row for each case of launches of one setup.

    The interval is that of the median of the launches' medians (the range of fewer than six); with a single launch, of
    its visits' medians.  ``launches`` says how many had the case.
    """
    cases = defaultdict(list)
    for launch in launches:
        for row in launch.rows:
            cases[row["bytes"], label(row)].append(row)
    return [
        {**(rows[0] if len(rows) == 1 else pool(rows)[0]), "launches": len(rows)} for _, rows in sorted(cases.items())
    ]


def units(launches: Sequence[Launch]) -> str:
    """What intervals are of, in words."""
    n = len(launches)
    if n == 1:
        return "one launch: intervals cover what varied within it, over visits"
    return f"{n} launches, each counting once" + ("; bars are their range" if n < ENOUGH else "")


@dataclass(frozen=True)
class Ratio:
    """How many times faster than MPI_Allreduce an algorithm is.

    Attributes
    ----------
    name : str
    bytes : int
    value, low, high : float
        MPI_Allreduce's time by the algorithm's, always of one launch, and the median of the launches'.  The interval is
        that median's; with fewer than six launches, it spans what each launch's two intervals allow.
    launches : int
    enough : bool
        Whether there are six launches, or six visits in each: of fewer no interval has 95 %.
    """

    name: str
    bytes: int
    value: float
    low: float
    high: float
    launches: int
    enough: bool

    @property
    def verdict(self) -> str:
        """``win``, ``lose``, ``tie`` (no difference shown) or ``undecided``."""
        if not self.enough:
            return "undecided"
        return "win" if self.low > 1 else "lose" if self.high < 1 else "tie"

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} .. {self.high:.2f})"


def ratios(launches: Sequence[Launch]) -> dict[tuple[str, int], Ratio]:
    """Of all cases that have an MPI_Allreduce of the same launch and size beside them, by label and bytes."""
    found = defaultdict(list)
    for launch in launches:
        vendor = {row["bytes"]: row for row in exact(launch.rows) if row["algorithm"] == "vendor"}
        for row in launch.rows:
            base = vendor.get(row["bytes"])
            if base is not None and row is not base:
                ratio = (base["median"] / row["median"], base["low"] / row["high"], base["high"] / row["low"])
                found[label(row), row["bytes"]].append((*ratio, min(row["visits"], base["visits"])))
    return {(name, size): _ratio(name, size, np.array(parts)) for (name, size), parts in found.items()}


def _ratio(name: str, size: int, parts: np.ndarray) -> Ratio:
    values, n = np.sort(parts[:, 0]), len(parts)
    if n < ENOUGH:
        low, high = parts[:, 1].min(), parts[:, 2].max()
    else:
        low, high = (values[position] for position in median_interval(n))
    enough = n >= ENOUGH or bool(parts[:, 3].min() >= ENOUGH)
    return Ratio(name, size, float(np.median(values)), float(low), float(high), n, enough)


def best_of_ours(found: dict[tuple[str, int], Ratio]) -> dict[int, Ratio]:
    """By size, the best of our algorithms without a codec; ``auto`` is none of them, but a choice among them."""
    best: dict[int, Ratio] = {}
    for (name, size), ratio in sorted(found.items(), key=lambda item: item[0][1]):
        if is_ours(name) and name != "auto" and " " not in name and ratio.value > getattr(best.get(size), "value", 0):
            best[size] = ratio
    return best
