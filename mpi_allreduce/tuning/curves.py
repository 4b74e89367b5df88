"""What each way of reducing took, by size, in one place.  No MPI."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..bench.records import read, read_launches
from ..bench.statistics import completion
from ..library import library_name

__all__ = ["Curve", "Place", "Way", "curves"]


class Way(NamedTuple):
    """How buffers are reduced."""

    algorithm: str
    codec: str


class Place(NamedTuple):
    """Where: only numbers of one place are compared."""

    library: str
    ranks: int
    nodes: int
    memory: str

    def __str__(self) -> str:
        return f"{self.ranks} ranks on {self.nodes} node{'s' * (self.nodes > 1)}, {self.library}, {self.memory} memory"


@dataclass
class Curve:
    """Seconds of one way against bytes, as float32 sums.

    Attributes
    ----------
    launches : list of dict of int to ndarray, shape (visits,)
        By bytes: the medians of the visits.
    error : float
        Relative L2 error, the largest measured.
    factors : dict of int to float
        By bytes: what seconds are multiplied with, where they are taken to another number of ranks.
    """

    launches: list[dict[int, np.ndarray]] = field(default_factory=list)
    error: float = 0.0
    factors: dict[int, float] = field(default_factory=dict)

    @property
    def sizes(self) -> list[int]:
        """That were measured, ascending."""
        return sorted(set().union(*self.launches))

    def medians(self) -> np.ndarray:
        """Seconds at each size: the median of the launches' medians."""
        return self._over(self.launches)

    def drawn(self, random: np.random.Generator) -> np.ndarray:
        """The same of launches, and visits in each, drawn with replacement."""
        chosen = [self.launches[i] for i in random.integers(0, len(self.launches), len(self.launches))]
        drawn = [{size: random.choice(visits, len(visits)) for size, visits in one.items()} for one in chosen]
        return self._over(drawn)

    def _over(self, launches: Sequence[dict[int, np.ndarray]]) -> np.ndarray:
        """Sizes that a draw of launches misses are as in all of them."""
        found = []
        for size in self.sizes:
            of_size = [one[size] for one in launches if size in one] or [o[size] for o in self.launches if size in o]
            found.append(np.median([np.median(visits) for visits in of_size]) * self.factors.get(size, 1.0))
        return np.array(found)

    def interpolate(self, medians: np.ndarray, nbytes: np.ndarray) -> np.ndarray:
        """Seconds of buffers of other sizes: straight lines, which is what latency and bandwidth make.

        Smaller ones than were measured take as long as the smallest, larger ones longer in proportion; see
        :meth:`outside`.
        """
        sizes = self.sizes
        return np.interp(nbytes, sizes, medians) * np.maximum(nbytes / sizes[-1], 1.0)

    def outside(self, nbytes: Iterable[int]) -> list[int]:
        """Those sizes that are smaller or larger than all that were measured."""
        low, *_, high = self.sizes * 2
        return [n for n in nbytes if not low <= n <= high]

    def at(self, factors: dict[int, float]) -> "Curve":
        """The curve of another number of ranks."""
        return replace(self, factors=factors)


def curves(paths: Sequence[Path]) -> dict[Place, dict[Way, Curve]]:
    """All that was measured of float32 sums, without skew, and was right.

    Raises
    ------
    OSError, ValueError
        If a file is no record.
    """
    places: dict[Place, dict[Way, Curve]] = {}
    for path in paths:
        for launch, facts in read_launches(path).items():
            environment = facts["environment"]
            found: dict[tuple[str, Way], dict[int, np.ndarray]] = {}
            errors: dict[tuple[str, Way], float] = {}
            for row in filter(_counts, read(path, launch)):
                key = row["memory"], Way(row["algorithm"], row["codec"])
                found.setdefault(key, {})[row["bytes"]] = _visits(row)
                errors[key] = max(errors.get(key, 0.0), row["error"])
            for (memory, way), sizes in found.items():
                library = library_name(environment["mpi_library"])
                place = Place(library, environment["ranks"], len(environment["hosts"]), memory)
                curve = places.setdefault(place, {}).setdefault(way, Curve())
                curve.launches.append(sizes)
                curve.error = max(curve.error, errors[memory, way])
    return places


def _counts(row: dict[str, object]) -> bool:
    return (
        "median" in row and not row["wrong"] and row["algorithm"] != "auto" and row["ranks"] > 1
        and (row["op"], row["dtype"], row["skew"], row["mode"]) == ("SUM", "float32", "none", "isolated")
    )  # fmt: skip


def _visits(row: dict[str, object]) -> np.ndarray:
    """Each visit's median."""
    seconds = completion(row["seconds"])
    return np.array([np.median(seconds[row["visit"] == visit]) for visit in np.unique(row["visit"])])
