"""Where and when records were made: what all launches share, and in what they differ.

Usage: python analysis/environments.py results/FILE.h5...
"""

import re
import sys
from collections.abc import Iterator

from drawing import Part, Table, program
from material import Material

from mpi_allreduce.library import library_name

_LONG = ("variables", "packages", "mpi4py_build", "vendor_fingerprint")  # one row for each key
_TEDIOUS = re.compile(r"(host|cpus)_of_rank|PMI_|PMIX_|.*(RANKID|RANK|HOSTNAME|_PORT)$")  # of rank 0 only, or long


def make(material: Material) -> Part:
    """Two tables; there is nothing to draw."""
    launches = dict(_environments(material))
    facts = {name: dict(_facts(environment)) for name, environment in launches.items()}
    keys = sorted({key for known in facts.values() for key in known})
    same = {key for key in keys if len({known.get(key) for known in facts.values()}) == 1}
    tables = [
        Table(
            "The same in all launches", ("fact", "value"), tuple((key, _at(facts, key)) for key in keys if key in same)
        ),
        Table(
            "Launches, and in what they differ",
            ("launch", "fact", "value"),
            tuple(
                (name if key == first else "", key, known[key])
                for name, known in facts.items()
                for first in [next((key for key in keys if key not in same and key in known), None)]
                for key in keys
                if key not in same and key in known
            ),
        ),
    ]
    return Part(
        name="environments",
        title="Where it was measured",
        how_to_read="Hardware, libraries, and variables of MPI libraries that were set; all of it is in the records.",
        tables=tuple(table for table in tables if table.rows),
        missing="No environments: nothing could be read.",
    )


def _at(facts: dict[str, dict[str, str]], key: str) -> str:
    return next(iter(facts.values()))[key]


def _environments(material: Material) -> Iterator[tuple[str, dict]]:
    for launch in material.launches:
        yield f"{launch.path.name} {launch.name}", launch.environment
    for number, launch in enumerate((*material.overlaps, *material.trainings), 1):
        yield f"{getattr(launch, 'launch', launch.name)} ({number})", launch.environment


def _facts(environment: dict) -> Iterator[tuple[str, str]]:
    for key, value in environment.items():
        if key in _LONG and isinstance(value, dict):
            kept = {name: str(what) for name, what in value.items() if not _TEDIOUS.match(name)}
            yield from ((name if key == "variables" else f"{key}: {name}", what) for name, what in kept.items())
        elif key == "mpi_library":
            yield key, library_name(value)
        elif key == "hosts":
            yield key, ", ".join(f"{host}: {ranks}" for host, ranks in value.items())
        elif key == "command":
            yield key, " ".join(map(str, value))
        elif not _TEDIOUS.match(key):
            yield key, str(value)


if __name__ == "__main__":
    sys.exit(program(make, __doc__))
