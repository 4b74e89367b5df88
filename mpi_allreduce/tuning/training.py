"""A decision table from records of the benchmark."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..bench.records import read, read_launches
from ..decisions.table import Rule, Situation, Timing
from ..library import library_name
from .vendors import forced_by

__all__ = ["Launch", "launches", "measurements"]


@dataclass(frozen=True)
class Launch:
    """What one launch measured.

    Attributes
    ----------
    identity : str
        The same whenever the record is read.
    situation : Situation
    environment : dict
        As recorded.
    rows : list of dict
        All cases.
    timings : dict of int to dict of str to Timing
        By bytes: algorithm -> timing, of sums without skew or lossy codec that were right; not of ``auto``, which is
        none of the candidates.
    """

    identity: str
    situation: Situation
    environment: dict[str, object]
    rows: list[dict[str, object]]
    timings: dict[int, dict[str, Timing]]

    @property
    def forced(self) -> str:
        """What made the MPI library use another algorithm than its own choice; empty if nothing did."""
        return forced_by(self.environment.get("variables", {}))


def launches(path: Path) -> Iterator[Launch]:
    """The launches in a record.

    Raises
    ------
    OSError, ValueError
        If the file is no record.
    """
    for launch, facts in read_launches(path).items():
        rows = read(path, launch)
        environment = facts["environment"]
        host = next(iter(environment["hosts"]), "")
        situation = Situation(
            library=library_name(environment["mpi_library"]),
            ranks=environment["ranks"],
            nodes=len(environment["hosts"]),
            crowded=_is_crowded(environment),
            native=all(row.get("native_op", True) for row in rows if row["algorithm"] == "vendor"),
        )
        timings: dict[int, dict[str, Timing]] = {}
        for row in sorted(filter(_counts, rows), key=lambda row: row["bytes"]):
            timings.setdefault(row["bytes"], {})[row["algorithm"]] = (row["median"], row["low"], row["high"])
        yield Launch(f"{environment['started']} {host} {path.name} {launch}", situation, environment, rows, timings)


def measurements(path: Path) -> Iterator[tuple[Situation, Rule]]:
    """What each launch in a record measured, size by size: not those that forced an algorithm of the MPI library."""
    for launch in launches(path):
        if not launch.forced:
            yield from ((launch.situation, Rule(n, {launch.identity: t})) for n, t in launch.timings.items())


def _counts(row: dict[str, object]) -> bool:
    return (
        "median" in row
        and row["algorithm"] != "auto"
        and row["skew"] == "none"
        and row["op"] in ("SUM", "AVG")
        and row["codec"] == "none"
        and not row["wrong"]
    )


def _is_crowded(environment: dict[str, object]) -> bool:
    """Whether some host has fewer cores, granted to any of its ranks, than ranks."""
    granted: dict[str, set[int]] = {}
    for host, cpus in zip(environment["host_of_rank"], environment["cpus_of_rank"], strict=True):
        granted.setdefault(host, set()).update(_numbers(cpus))
    return any(ranks > len(granted[host]) for host, ranks in environment["hosts"].items())


def _numbers(text: str) -> Iterator[int]:
    """``0-2,5`` -> 0, 1, 2, 5."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
