"""The cost model's numbers from records: what a message, a byte and a reduced byte cost on this machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from ..algorithms import fitted, names
from ..bench.records import read, read_launches
from ..library import library_name
from ..simulate import Flat, Machine, simulate

__all__ = ["Fit", "Sample", "fit_machine", "predict", "samples"]

DRAWS = 400
SEED = 1


@dataclass(frozen=True)
class Sample:
    """One measured case of one of our schedules.

    Attributes
    ----------
    algorithm : str
    bytes, ranks, per_node : int
    seconds : float
        Median.
    library : str
    """

    algorithm: str
    bytes: int
    ranks: int
    per_node: int
    seconds: float
    library: str

    @property
    def parts(self) -> tuple[float, float, float]:
        """What alpha, beta and gamma multiply: messages, bytes sent and bytes reduced one after the other.

        Each counted on the way through the schedule that has most of it.
        """
        return _parts(self.algorithm, self.bytes, self.ranks, self.per_node)


@lru_cache(maxsize=4096)
def _parts(algorithm: str, nbytes: int, ranks: int, per_node: int) -> tuple[float, float, float]:
    case = Sample(algorithm, nbytes, ranks, per_node, 0.0, "")
    units = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    return tuple(predict(case, Machine(a, b, c, a, b, eager_bytes=0)) for a, b, c in units)


@dataclass(frozen=True)
class Fit:
    """A machine, and how sure its numbers are.

    Attributes
    ----------
    machine : Machine
    intervals : dict of str to (float, float)
        95 %, of ``alpha``, ``beta`` and ``gamma``.
    """

    machine: Machine
    intervals: dict[str, tuple[float, float]]


def samples(paths: Sequence[Path]) -> list[Sample]:
    """The cases of records that a model can be fitted to: float32 sums of schedules, right, without codec or skew.

    Raises
    ------
    OSError, ValueError
        If a file is no record.
    """
    found = []
    for path in paths:
        for launch, facts in read_launches(path).items():
            hosts = facts["environment"]["hosts"]
            per_node = max(hosts.values())
            library = library_name(facts["environment"]["mpi_library"])
            found += [
                Sample(row["algorithm"], row["bytes"], row["ranks"], per_node, row["median"], library)
                for row in read(path, launch)
                if _counts(row) and row["ranks"] > 1
            ]
    return found


def _counts(row: dict[str, object]) -> bool:
    return (
        "median" in row and not row["wrong"] and row["algorithm"].partition(":")[0] in names()
        and (row["op"], row["dtype"], row["codec"], row["skew"]) == ("SUM", "float32", "none", "none")
        and row["memory"] == "host"
    )  # fmt: skip


def fit_machine(cases: Sequence[Sample], name: str = "") -> Fit:
    """Least squares of the relative errors of messages * alpha + sent * beta + reduced * gamma, with none below zero.

    The intervals are those of fits to cases drawn with replacement.

    Parameters
    ----------
    cases : sequence of Sample
        All with one rank on each node, or all on one node.
    name : str

    Raises
    ------
    ValueError
        If there are too few cases, or ranks share some nodes and not others.
    """
    local = all(case.per_node == case.ranks for case in cases)
    if not local and any(case.per_node > 1 for case in cases):
        raise ValueError("fit: records with several ranks on each of several nodes mix two kinds of messages; give "
                         "records with one rank on each node, or on one node only")  # fmt: skip
    parts, seconds = np.array([case.parts for case in cases]), np.array([case.seconds for case in cases])
    if len(cases) < 6 or _rank(parts[:, :2]) < 2:
        raise ValueError(
            f"fit: {len(cases)} cases do not tell latency and bandwidth apart; give records with several sizes, of "
            "several algorithms (for instance ring, binomial_tree and recursive_doubling)"
        )
    if _rank(parts) < 3:  # of each byte sent the same fraction is reduced: beta stands for both
        parts[:, 2] = 0
    best = _solve(parts, seconds)
    random = np.random.default_rng(SEED)
    draws = []
    for _ in range(DRAWS):
        chosen = random.integers(0, len(cases), len(cases))
        draws.append(_solve(parts[chosen], seconds[chosen]))
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    alpha, beta, gamma = best.tolist()
    machine = Machine(alpha, beta, gamma, alpha, beta, name=name or f"fitted to {cases[0].library}")
    pairs = zip(("alpha", "beta", "gamma"), low.tolist(), high.tolist(), strict=True)
    return Fit(machine, {key: (a, b) for key, a, b in pairs})


def _rank(parts: np.ndarray) -> int:
    return int(np.linalg.matrix_rank(parts / parts.max(axis=0, initial=1e-300), tol=1e-3 * len(parts) ** 0.5))


def _solve(parts: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Least squares with no number below zero: the best of all choices of those that are zero."""
    rows, best, least = parts / seconds[:, None], np.zeros(3), np.inf
    for mask in range(1, 8):
        used = [i for i in range(3) if mask >> i & 1]
        if not rows[:, used].any(axis=0).all():
            continue
        solution = np.linalg.lstsq(rows[:, used], np.ones(len(rows)), rcond=None)[0]
        if (solution < 0).any():
            continue
        error = float(np.square(rows[:, used] @ solution - 1).sum())
        if error < least:
            best, least = np.zeros(3), error
            best[used] = solution
    return best


def predict(case: Sample, machine: Machine) -> float:
    """Seconds, by the simulator on a network that is never the bottleneck."""
    nodes = -(-case.ranks // case.per_node)
    algorithm = fitted(case.algorithm, case.ranks, case.bytes)
    return simulate(algorithm, case.ranks, case.bytes, machine, Flat(nodes), case.per_node).seconds
