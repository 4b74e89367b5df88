"""A decision table from records of the benchmark."""

from collections.abc import Iterator
from pathlib import Path

from ..bench.records import read, read_launches
from ..decisions.table import Rule, Situation
from ..library import library_name

__all__ = ["launches", "measurements"]


def measurements(path: Path) -> Iterator[tuple[Situation, Rule]]:
    """What each launch in a record measured, size by size.

    Left out are skewed launches, operators other than sums, lossy codecs, results that were wrong, and ``auto``, which
    is none of the candidates.

    Raises
    ------
    OSError, ValueError
        If the file is no record.
    """
    for situation, identity, rows in launches(path):
        counted = [row for row in rows if _counts(row)]
        for size in sorted({row["bytes"] for row in counted}):
            timings = {
                row["algorithm"]: (row["median"], row["low"], row["high"]) for row in counted if row["bytes"] == size
            }
            yield situation, Rule(size, {identity: timings})


def launches(path: Path) -> Iterator[tuple[Situation, str, list[dict[str, object]]]]:
    """The launches in a record: where they ran, what identifies them anywhere, and their rows.

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
        yield situation, f"{environment['started']} {host} {path.name} {launch}", rows


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
