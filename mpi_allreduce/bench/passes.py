"""Which cases are visited when: several passes over all of them, then more over those that are still uncertain.

The state of a machine changes from minute to minute (frequencies, neighbours, placement of memory), and moves all that
is measured meanwhile.  A case that is timed in one go is therefore known to a hundredth in its own moment, and unknown
otherwise.  So every case is visited in each of several passes, in another order each time, and its interval is that of
the medians of its visits.
"""

import random
from collections.abc import Callable
from time import perf_counter

from .settings import Case

__all__ = ["MOST_PASSES", "Passes"]

MOST_PASSES = 20
SHARE_OF_BASE = 0.75  # of the time, for the passes over all cases
LEAST_SECONDS = 0.04  # for a visit that comes when the time is used up


class Passes:
    """Decides on rank 0 what is visited next.

    Parameters
    ----------
    cases : list of Case
    passes : int
        Passes over all cases.
    max_seconds : float
        For all visits together, from now on.
    seed : int
        Of the orders.
    """

    def __init__(self, cases: list[Case], passes: int, max_seconds: float, seed: int):
        self.cases = cases
        self.passes = passes
        self.number = 0
        self._random = random.Random(seed)
        self._started = perf_counter()
        self._max_seconds = max_seconds
        self._left = 0  # visits of this pass

    def next_pass(self, is_uncertain: Callable[[Case], bool]) -> list[Case]:
        """The cases of the next pass, in the order in which they are to be visited; empty at the end."""
        if self.number < self.passes:
            chosen = list(self.cases)
        elif self.number < MOST_PASSES and self._remaining(1.0) > 0:
            chosen = [case for case in self.cases if is_uncertain(case)]
        else:
            chosen = []
        self.number += 1
        self._random.shuffle(chosen)
        self._left = len(chosen)
        return chosen

    def share(self) -> float:
        """Seconds for the next visit, of the time that is left."""
        if self.number <= self.passes:
            visits = self._left + (self.passes - self.number) * len(self.cases)
            share = self._remaining(SHARE_OF_BASE) / visits
        else:
            share = self._remaining(1.0) / self._left / 2
        self._left -= 1
        return max(share, LEAST_SECONDS)

    def _remaining(self, part: float) -> float:
        return self._started + part * self._max_seconds - perf_counter()
