"""Summaries that assume nothing about how times are distributed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

__all__ = ["ENOUGH", "Summary", "completion", "median_interval", "summarise"]

CONFIDENCE = 0.95
EXACT_UP_TO = 1000
ENOUGH = 6  # samples: the range of fewer is no 95 % interval, and proves nothing


@dataclass(frozen=True)
class Summary:
    """Seconds of one case; a repetition's time is that of its slowest rank.

    Attributes
    ----------
    repetitions, visits : int
    median, low, high : float
        The median of the visits' medians, and its confidence interval over visits: repetitions within a visit are too
        much alike to count as independent.  With a single visit, of repetitions.
    p5, p95, p99, minimum, maximum : float
    """

    repetitions: int
    visits: int
    median: float
    low: float
    high: float
    p5: float
    p95: float
    p99: float
    minimum: float
    maximum: float

    @property
    def half_width(self) -> float:
        """Half the interval's width, relative to the median."""
        return (self.high - self.low) / 2 / self.median if self.median > 0 else math.inf


def completion(seconds: np.ndarray, delays: np.ndarray | None = None) -> np.ndarray:
    """The time of each repetition: from the last rank's arrival to the last rank's end.

    Parameters
    ----------
    seconds : ndarray, shape (repetitions, ranks)
        From each rank's own arrival to its end.
    delays : ndarray, shape (repetitions, ranks), optional
        How much later than planned each rank arrived on purpose.

    Returns
    -------
    ndarray, shape (repetitions,)
    """
    if delays is None:
        return seconds.max(axis=1)
    return (seconds + delays).max(axis=1) - delays.max(axis=1)


def summarise(visits: Sequence[np.ndarray]) -> Summary:
    """Summary of one case.

    Parameters
    ----------
    visits : sequence of ndarray, shape (repetitions,)
        Times of the repetitions of each visit.
    """
    times = np.concatenate(visits)
    units = np.sort([np.median(visit) for visit in visits] if len(visits) > 1 else times)
    low, high = median_interval(len(units))
    p5, p95, p99 = np.percentile(times, (5, 95, 99))
    summary = (np.median(units), units[low], units[high], p5, p95, p99, times.min(), times.max())
    return Summary(len(times), len(visits), *map(float, summary))


@lru_cache(maxsize=4096)
def median_interval(n: int, confidence: float = CONFIDENCE) -> tuple[int, int]:
    """Positions, among ``n`` ordered samples, of the ends of a confidence interval of the median.

    By the sign test: the number of samples below the median is binomial (n, 1/2).  Of fewer than six samples no
    interval has 95 %, and the whole range is given.
    """
    tail = (1 - confidence) / 2
    if n > EXACT_UP_TO:
        k = math.floor(n / 2 + NormalDist().inv_cdf(tail) * math.sqrt(n) / 2 - 0.5)
    else:
        k, ways, below = 0, 1, 1  # below = 2^n P(at most k samples lie below the median)
        while below + ways * (n - k) // (k + 1) <= tail * 2**n:
            ways = ways * (n - k) // (k + 1)
            k, below = k + 1, below + ways
    return max(k, 0), n - 1 - max(k, 0)
