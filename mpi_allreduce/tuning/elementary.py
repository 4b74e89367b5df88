"""What messages and additions cost, from round trips, exchanges and additions that were timed alone.  No MPI."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["Estimate", "Probes", "additions", "exchanges", "loggp"]

DRAWS = 400
SEED = 1

Probes = Sequence[Mapping[str, object]]
"""Of one launch, as :func:`mpi_allreduce.bench.read_probes` gives them."""

Operation = tuple[str, str, int, int, bool]
"""Kind, place, bytes, messages, and whether the messages were kept apart."""


class Estimate(NamedTuple):
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float


def additions(launches: Sequence[Probes]) -> dict[str, Estimate]:
    """``gamma``: seconds of each byte that is reduced, while all ranks do."""
    return _estimates(launches, lambda seconds: _line(seconds, "add", "cores", ("", "gamma")))


def exchanges(launches: Sequence[Probes], place: str) -> dict[str, Estimate]:
    """``alpha`` and ``beta``: seconds of a message and of a byte, while two ranks send to each other.

    Parameters
    ----------
    launches : sequence of probes
    place : str
        ``network`` or ``node``.

    Returns
    -------
    dict of str to Estimate
        Empty if nothing was timed there.
    """
    return _estimates(launches, lambda seconds: _line(seconds, "exchange", place, ("alpha", "beta")))


def loggp(launches: Sequence[Probes], place: str) -> dict[str, Estimate]:
    """``L``, ``o``, ``g`` and ``G`` of LogGP, in seconds, the last for each byte.

    Messages that are sent as fast as they go follow each other after g and G for each byte; of such that are kept
    apart each costs the sender o alone; L is what is left of half a round trip, which has o on both sides.

    Notes
    -----
    Source: T. Hoefler, A. Lichei, W. Rehm: Low-overhead LogGP parameter assessment for modern interconnection
    networks, IPDPS 2007.
    """
    return _estimates(launches, lambda seconds: _loggp(seconds, place))


def _loggp(seconds: dict[Operation, float], place: str) -> dict[str, float]:
    trips = {size: s for (kind, at, size, n, _), s in seconds.items() if (kind, at, n) == ("train", place, 1)}
    trains = [
        (size, n, apart, (s - trips[size]) / (n - 1))
        for (kind, at, size, n, apart), s in seconds.items()
        if (kind, at) == ("train", place) and n > 1 and size in trips
    ]
    close = {size: each for size, _, apart, each in trains if not apart}
    alone = {size: each for size, _, apart, each in trains if apart}
    if len(close) < 2 or not alone:
        return {}
    smallest = min(alone)
    gap, per_byte = _fit_line(close)
    overhead = max(alone[smallest], 0.0)
    return {"L": max(trips[smallest] / 2 - 2 * overhead, 0.0), "o": overhead, "g": gap, "G": per_byte}


def _line(seconds: dict[Operation, float], kind: str, place: str, names: tuple[str, str]) -> dict[str, float]:
    """Constant and slope against bytes, under these names; an empty one is left out."""
    points = {size: s for (k, at, size, _, _), s in seconds.items() if (k, at) == (kind, place)}
    if len(points) < 2:
        return {}
    return {name: value for name, value in zip(names, _fit_line(points), strict=True) if name}


def _fit_line(points: Mapping[int, float]) -> tuple[float, float]:
    """Least squares of the relative errors, with no number below zero."""
    sizes, seconds = np.array(list(points), float), np.maximum(list(points.values()), 1e-12)
    constant, slope = np.linalg.lstsq(
        np.stack([1 / seconds, sizes / seconds], axis=1), np.ones(len(sizes)), rcond=None
    )[0]
    if slope < 0:
        return float(np.median(seconds)), 0.0
    if constant < 0:
        return 0.0, float(np.median(seconds / sizes))
    return float(constant), float(slope)


def _estimates(
    launches: Sequence[Probes], compute: Callable[[dict[Operation, float]], dict[str, float]]
) -> dict[str, Estimate]:
    """Apply to medians; the intervals are those of launches, and repetitions in each, drawn with replacement."""
    timed = [table for table in map(_by_operation, launches) if table]
    if not timed or not (values := compute(_medians(timed))):
        return {}
    random = np.random.default_rng(SEED)
    draws = []
    for _ in range(DRAWS):
        chosen = [timed[i] for i in random.integers(0, len(timed), len(timed))]
        drawn = [{key: random.choice(times, len(times)) for key, times in table.items()} for table in chosen]
        draws.append(compute(_medians(drawn)))
    ends = {
        name: np.quantile([draw[name] for draw in draws if name in draw] or [value], [0.025, 0.975])
        for name, value in values.items()
    }
    return {name: Estimate(value, *map(float, ends[name])) for name, value in values.items()}


def _by_operation(probes: Probes) -> dict[Operation, np.ndarray]:
    """Seconds without the delays that were put between messages."""
    return {
        (p["kind"], p["place"], p["bytes"], p["messages"], p["delay"] > 0): p["seconds"]
        - (p["messages"] - 1) * p["delay"]
        for p in probes
    }


def _medians(tables: Sequence[Mapping[Operation, np.ndarray]]) -> dict[Operation, float]:
    """Of the launches' medians."""
    found: dict[Operation, list[float]] = {}
    for table in tables:
        for key, times in table.items():
            found.setdefault(key, []).append(float(np.median(times)))
    return {key: float(np.median(values)) for key, values in found.items()}
