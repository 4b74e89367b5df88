"""The cost model's numbers from records: what a message, a byte and a reduced byte cost on this machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from ..algorithms import fitted, names
from ..bench.records import read, read_launches, read_probes
from ..library import library_name
from ..simulate import Flat, Machine, simulate
from .elementary import Estimate, Probes, additions, exchanges, loggp

__all__ = ["PLACES", "Fit", "Sample", "fit_machine", "predict", "probes", "samples"]

PLACES = ("network", "node")

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
    estimates : dict of str to Estimate
        Those of the machine's numbers that were measured, with intervals.
    sources : dict of str to str
        For each of them: ``sweep`` (the benchmark's cases), ``exchanges`` or ``additions`` (timed alone).
    exchanges : dict of str to dict
        By place, ``network`` or ``node``: alpha and beta of two ranks that send to each other.
    loggp : dict of str to dict
        By place: L, o, g and G.
    """

    machine: Machine
    estimates: dict[str, Estimate]
    sources: dict[str, str]
    exchanges: dict[str, dict[str, Estimate]]
    loggp: dict[str, dict[str, Estimate]]

    @property
    def from_exchanges(self) -> Machine | None:
        """What two ranks alone would make one believe; None if nothing was timed between them."""
        network, node = (self.exchanges.get(place) for place in PLACES)
        if not (network or node):
            return None
        (alpha, *_), (beta, *_) = (network or node).values()
        (local_alpha, *_), (local_beta, *_) = (node or network).values()
        return replace(self.machine, alpha=alpha, beta=beta, local_alpha=local_alpha, local_beta=local_beta)


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


def probes(paths: Sequence[Path]) -> list[Probes]:
    """What was timed beside the cases, launch by launch."""
    return [timed for path in paths for timed in read_probes(path).values()]


def _counts(row: dict[str, object]) -> bool:
    return (
        "median" in row and not row["wrong"] and row["algorithm"].partition(":")[0] in names()
        and (row["op"], row["dtype"], row["codec"], row["skew"]) == ("SUM", "float32", "none", "none")
        and row["memory"] == "host"
    )  # fmt: skip


def fit_machine(cases: Sequence[Sample], launches: Sequence[Probes] = (), name: str = "") -> Fit:
    """The numbers of a machine that explain its records best.

    Latency and bandwidth are those of the sweep where it has cases enough, of exchanges otherwise: of the network from
    one rank on each node, inside a node from ranks of one node.  What could not be measured in one place is taken to
    be as in the other.  A reduced byte costs what additions alone took.

    Parameters
    ----------
    cases : sequence of Sample
        Of one library.  With several ranks on each of several nodes they are to be predicted: their two kinds of
        messages overlap.
    launches : sequence of probes
        What :func:`mpi_allreduce.bench.read_probes` gives for each launch.
    name : str

    Raises
    ------
    ValueError
        If nothing tells latency and bandwidth apart, or libraries are mixed.

    Notes
    -----
    The sweep: least squares of the relative errors of messages * alpha + sent * beta + reduced * gamma, with none
    below zero; the intervals are those of fits to cases drawn with replacement.
    """
    if len(libraries := {case.library for case in cases}) > 1:
        raise ValueError(f"fit: records of {' and '.join(sorted(libraries))}; fit one library at a time")
    added = additions(launches)
    alone = {place: exchanges(launches, place) for place in PLACES}
    chosen = {"network": [c for c in cases if c.per_node == 1], "node": [c for c in cases if c.per_node == c.ranks]}
    swept = {place: _sweep(chosen[place], added) for place in PLACES}
    network, node = (swept[place] or alone[place] for place in PLACES)
    if not (network or node):
        raise ValueError(
            f"fit: {len(cases)} cases do not tell latency and bandwidth apart; give records with several sizes, of "
            "several algorithms (for instance ring, binomial_tree and recursive_doubling), with one rank on each node "
            "or on one node only"
        )
    estimates = {**network, **{f"local_{key}": value for key, value in node.items() if key != "gamma"}}
    estimates["gamma"] = (added or network or node).get("gamma") or Estimate(0.0, 0.0, 0.0)
    values = {key: estimate.value for key, estimate in estimates.items()}
    network, node = network or node, node or network
    machine = Machine(
        **{
            "alpha": network["alpha"].value, "beta": network["beta"].value,
            "local_alpha": node["alpha"].value, "local_beta": node["beta"].value, **values,
            "name": name or f"fitted to {next(iter(libraries), 'exchanges')}",
        }
    )  # fmt: skip
    source = {place: "sweep" if swept[place] else "exchanges" for place in PLACES}
    sources = {key: source["node" if key.startswith("local") else "network"] for key in estimates}
    sources["gamma"] = "additions" if added else "sweep"
    return Fit(machine, estimates, sources, alone, {place: loggp(launches, place) for place in PLACES})


def _sweep(cases: Sequence[Sample], added: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """alpha, beta and gamma of one place; nothing if the cases do not tell them apart."""
    if len(cases) < 6:
        return {}
    parts, seconds = np.array([case.parts for case in cases]), np.array([case.seconds for case in cases])
    if _rank(parts[:, :2]) < 2:
        return {}
    names = ["alpha", "beta", "gamma"]
    known = np.zeros(len(cases))
    if added or _rank(parts) < 3:  # known, or of each byte sent the same fraction is reduced: beta stands for both
        known = parts[:, 2] * (added["gamma"].value if added else 0)
        names, parts = names[:2], parts[:, :2]
    random = np.random.default_rng(SEED)
    draws = []
    for _ in range(DRAWS):
        chosen = random.integers(0, len(cases), len(cases))
        draws.append(_solve(parts[chosen], seconds[chosen], known[chosen]))
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    columns = zip(names, _solve(parts, seconds, known).tolist(), low.tolist(), high.tolist(), strict=True)
    return {name: Estimate(*numbers) for name, *numbers in columns}


def _rank(parts: np.ndarray) -> int:
    return int(np.linalg.matrix_rank(parts / parts.max(axis=0, initial=1e-300), tol=1e-3 * len(parts) ** 0.5))


def _solve(parts: np.ndarray, seconds: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Least squares of the relative errors of ``known + parts @ solution``, with no number below zero.

    The best of all choices of those that are zero.
    """
    rows, rest = parts / seconds[:, None], 1 - known / seconds
    width = rows.shape[1]
    best, least = np.zeros(width), np.inf
    for mask in range(1, 1 << width):
        used = [i for i in range(width) if mask >> i & 1]
        if not rows[:, used].any(axis=0).all():
            continue
        solution = np.linalg.lstsq(rows[:, used], rest, rcond=None)[0]
        if (solution < 0).any():
            continue
        error = float(np.square(rows[:, used] @ solution - rest).sum())
        if error < least:
            best, least = np.zeros(width), error
            best[used] = solution
    return best


def predict(case: Sample, machine: Machine) -> float:
    """Seconds, by the simulator on a network that is never the bottleneck."""
    nodes = -(-case.ranks // case.per_node)
    algorithm = fitted(case.algorithm, case.ranks, case.bytes)
    return simulate(algorithm, case.ranks, case.bytes, machine, Flat(nodes), case.per_node).seconds
