"""Which cases are visited when: several passes over all of them, then more over those that are still uncertain.

The state of a machine changes from minute to minute (frequencies, neighbours, placement of memory), and moves all that
is measured meanwhile.  A case that is timed in one go is therefore known to a hundredth in its own moment, and unknown
otherwise.  So every case is visited in each of several passes, in another order each time, and its interval is that of
the medians of its visits.
"""

import random
from collections import Counter
from collections.abc import Callable
from time import perf_counter

from .settings import Case

__all__ = ["MOST_PASSES", "Passes"]

MOST_PASSES = 20
SHARE_OF_BASE = 0.75  # of the time, for the passes over all cases
LEAST_SECONDS = 0.04  # for a visit that comes when the time is used up


class Passes:
    """Decides on rank 0 which case is visited next, and for how long.

    Parameters
    ----------
    cases : list of Case
    passes : int
        Passes over all cases.
    max_seconds : float
        For all visits together, from now on.  When it is used up, only cases that were never visited still are.
    seed : int
        Of the orders.
    visited : mapping of Case to int, optional
        Visits that were made in an earlier part of the launch.
    """

    def __init__(
        self,
        cases: list[Case],
        passes: int,
        max_seconds: float,
        seed: int,
        visited: Counter[Case] | None = None,
    ):
        self.cases = list(cases)
        self.passes = passes
        self.visited = Counter(visited)
        self.number = -1  # of the pass that is being made
        self._random = random.Random(seed)
        self._started = perf_counter()
        self._max_seconds = max_seconds
        self._queue: list[Case] = []

    @property
    def left(self) -> int:
        """Visits that are still to come, as far as is known."""
        later = sum(max(self.passes - max(self.visited[case], self.number + 1), 0) for case in self.cases)
        return len(self._queue) + later

    def next_visit(self, is_uncertain: Callable[[Case], bool]) -> tuple[Case, float] | None:
        """The next case and the seconds for it; None at the end.

        Parameters
        ----------
        is_uncertain : callable
            Whether a case that was visited often enough needs more visits.
        """
        while not self._queue:
            self.number += 1
            if self.number >= MOST_PASSES or (self.number >= self.passes and self._remaining(1.0) <= 0):
                return None
            self._queue = [case for case in self.cases if self._is_wanted(case, is_uncertain)]
            if not self._queue and self.number >= self.passes:
                return None
            self._random.shuffle(self._queue)
        if self._remaining(1.0) <= 0:
            self._queue = [case for case in self._queue if not self.visited[case]]
            if not self._queue:
                return None
        share = self._share()
        case = self._queue.pop()
        self.visited[case] += 1
        return case, share

    def forget(self, case: Case) -> None:
        """Do not visit ``case`` any more."""
        self.cases.remove(case)

    def _is_wanted(self, case: Case, is_uncertain: Callable[[Case], bool]) -> bool:
        return self.visited[case] <= self.number if self.number < self.passes else is_uncertain(case)

    def _share(self) -> float:
        if self.number < self.passes:
            share = self._remaining(SHARE_OF_BASE) / max(self.left, 1)
        else:
            share = self._remaining(1.0) / len(self._queue) / 2
        return max(share, LEAST_SECONDS)

    def _remaining(self, part: float) -> float:
        return self._started + part * self._max_seconds - perf_counter()
