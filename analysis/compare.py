"""Which cases became slower, and which faster, from older records to newer ones.

Usage: python analysis/compare.py OLD.h5... --with NEW.h5...

Compared are cases of the same setup: MPI library and its settings, machine, ranks and nodes, and way of measuring.
What counts is one time for each launch; where either side has a single launch, one for each visit, and then the result
says nothing about other launches.  The test is Mann and Whitney's, exact and two-sided, with Holm's correction for
the number of cases; the ratio is Hodges and Lehmann's: the median of all ratios of a new time to an old one, with the
interval that belongs to the test.  Slower or faster is what the test tells apart at 5 % and differs by more than 3 %.

Exit status: 0 if nothing is surely slower, 1 if something is, 2 if records cannot be read or have nothing in common.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import comb
from pathlib import Path
from statistics import NormalDist

import numpy as np
from drawing import Table, on_screen, us
from material import Launch, Material, Setup, is_ours, load, tell
from scipy.stats import PermutationMethod, mannwhitneyu

from mpi_allreduce.bench.settings import Case
from mpi_allreduce.screen import console

LEVEL = 0.05
TIE = 0.03
NORMAL_FROM = 40  # samples on both sides: counting orders overflows, and gives the same


@dataclass(frozen=True)
class Change:
    """One case, before and after.

    Attributes
    ----------
    setup : Setup
    case : Case
    old, new : float
        Median seconds.
    ratio, low, high : float
        New by old time, with its 95 % interval; infinitely wide where there are too few samples for one.
    p : float
        Of no difference; corrected for the number of cases, by :func:`corrected`.
    sizes : tuple of int
        Samples before and after.
    unit : str
        ``launches`` or ``visits``.
    """

    setup: Setup
    case: Case
    old: float
    new: float
    ratio: float
    low: float
    high: float
    p: float
    sizes: tuple[int, int]
    unit: str

    @property
    def verdict(self) -> str:
        """``slower``, ``faster``, ``tie`` (within 3 %) or ``not sure``."""
        if abs(np.log(self.ratio)) <= np.log1p(TIE):
            return "tie"
        if self.p > LEVEL:
            return "not sure"
        return "slower" if self.ratio > 1 else "faster"


def changes(old: Material, new: Material) -> list[Change]:
    """All cases that both have, with p as the test gives it for each alone."""
    found = []
    for setup in old.setups.keys() & new.setups.keys():
        before, after = old.setups[setup], new.setups[setup]
        for case in sorted(_cases(before) & _cases(after), key=lambda case: (case.bytes, str(case))):
            pairs, unit = _samples(case, before, after)
            found.append(_change(setup, case, *pairs, unit))
    return sorted(found, key=lambda change: change.setup)


def _cases(launches: Sequence[Launch]) -> set[Case]:
    return {case for launch in launches for case in launch.visits}


def _samples(case: Case, *sides: Sequence[Launch]) -> tuple[list[np.ndarray], str]:
    visits = [[launch.visits[case] for launch in side if case in launch.visits] for side in sides]
    if min(map(len, visits)) > 1:
        return [np.array([np.median(times) for times in side]) for side in visits], "launches"
    return [np.concatenate(side) for side in visits], "visits"


def _change(setup: Setup, case: Case, old: np.ndarray, new: np.ndarray, unit: str) -> Change:
    ties = len({*old.tolist(), *new.tolist()}) < len(old) + len(new)
    method = PermutationMethod(n_resamples=9999, rng=1) if ties else "exact"  # all of them, if there are fewer
    p = float(mannwhitneyu(new, old, method=method).pvalue) if min(len(old), len(new)) > 1 else 1.0
    ratios = np.sort((new[:, None] / old[None, :]).ravel())
    k = _critical(len(old), len(new))
    low, high = (ratios[k - 1], ratios[-k]) if k else (0.0, np.inf)
    middle = (np.median(times) for times in (old, new))
    return Change(setup, case, *map(float, (*middle, np.median(ratios), low, high)), p, (len(old), len(new)), unit)


@lru_cache
def _critical(n: int, m: int) -> int:
    """How many of the n m ratios, in order, lie outside the interval on either side, plus one; 0 without an interval.

    That is, the largest k with P(U < k) <= 2.5 %.  Of n + m values in random order, u[i] counts the orders in which U
    is i: a product of (1 - x^(m + j)) / (1 - x^j), for j from 1 to n.
    """
    if min(n, m) > NORMAL_FROM:
        return int(n * m / 2 + NormalDist().inv_cdf(LEVEL / 2) * (n * m * (n + m + 1) / 12) ** 0.5)
    u = np.zeros(n * m + 1)
    u[0] = 1.0
    for j in range(1, n + 1):
        u[m + j :] = u[m + j :] - u[: max(n * m + 1 - m - j, 0)]
        for first in range(j):
            u[first::j] = u[first::j].cumsum()
    return int(np.searchsorted(u.cumsum() / comb(n + m, n), LEVEL / 2, side="right"))


def corrected(found: Sequence[Change]) -> list[Change]:
    """With p corrected by Holm's method: the chance of any false alarm among all cases stays below the level."""
    order = sorted(range(len(found)), key=lambda i: found[i].p)
    result, largest = list(found), 0.0
    for place, i in enumerate(order):
        largest = max(largest, min(1.0, found[i].p * (len(found) - place)))
        result[i] = replace(found[i], p=largest)
    return result


def powerless(found: Sequence[Change]) -> str:
    """What to do if the samples are too small for the test ever to tell anything; else empty."""
    if any(2 / comb(sum(c.sizes), c.sizes[0]) * len(found) <= LEVEL for c in found):
        return ""
    needed = next(n for n in range(2, 100) if 2 / comb(2 * n, n) * len(found) <= LEVEL)
    unit = found[0].unit
    return (
        f"Too few {unit} for the test ever to tell slower from faster in {len(found)} cases: it takes {needed} before "
        f"and {needed} after. Record more launches, or compare fewer cases."
    )


def table(found: Sequence[Change]) -> list[Table]:
    """One for each setup."""
    headers = ("case", "old us ", "new us ", "new / old ", "95 % interval ", "p ", "n ", "verdict")
    return [
        Table(
            f"{setup}; what counts: {', '.join(sorted({c.unit for c in here}))}",
            headers,
            tuple(
                (
                    str(c.case), us(c.old), us(c.new), f"{c.ratio:.3f}",
                    f"{c.low:.3f} .. {c.high:.3f}" if c.high < np.inf else "too few", f"{c.p:.2g}",
                    "+".join(map(str, c.sizes)), c.verdict,
                )
                for c in here
            ),
        )
        for setup in dict.fromkeys(c.setup for c in found)
        for here in [[c for c in found if c.setup == setup]]
    ]  # fmt: skip


def closing_lines(found: Sequence[Change]) -> list[str]:
    """What came out, in words."""
    lines = []
    for word in ("slower", "faster"):
        chosen = [c for c in found if c.verdict == word]
        worst = max(chosen, key=lambda c: abs(np.log(c.ratio)), default=None)
        most = f", most of all {worst.case}: {worst.ratio:.2f} x its time" if worst else ""
        lines.append(f"{len(chosen)} of {len(found)} cases are surely {word}{most}.")
    if any(c.unit == "visits" for c in found):
        lines.append("A side has a single launch: visits were compared, and another launch may differ by more.")
    vendor = [c.ratio for c in found if not is_ours(c.case.algorithm)]
    if vendor and abs(np.log(np.median(vendor))) > np.log1p(TIE):
        lines.append(
            f"MPI_Allreduce, too, takes {np.median(vendor):.2f} x its time: the machine or the library has changed."
        )
    return [*lines, *filter(None, [powerless(found)])]


def main(arguments: list[str] | None = None) -> int:
    """Compare, and say so."""
    summary, _, rest = __doc__.partition("\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, nargs="+", metavar="OLD.h5")
    parser.add_argument("--with", type=Path, nargs="+", required=True, dest="new", metavar="NEW.h5")
    args = parser.parse_args(arguments)
    old, new = load(args.old), load(args.new)
    tell([*old.problems, *new.problems])
    if old.problems or new.problems:
        return 2
    found = corrected(changes(old, new))
    screen = console(130)
    for setup in sorted(old.setups.keys() ^ new.setups.keys()):
        screen.print(
            f"Not compared, only in {'the old' if setup in old.setups else 'the new'}: {setup}", soft_wrap=True
        )
    if not found:
        print("compare: the records have no case of one setup in common", file=sys.stderr)
        return 2
    for made in table(found):
        screen.print(on_screen(made))
    for line in closing_lines(found):
        screen.print(line, soft_wrap=True)
    return 1 if any(c.verdict == "slower" for c in found) else 0


if __name__ == "__main__":
    sys.exit(main())
