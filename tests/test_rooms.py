"""The plan of the house: a room imports from its own floor and from lower ones, and MPI only from runtime upwards."""

import ast
from pathlib import Path

import pytest

import mpi_allreduce

HOUSE = Path(mpi_allreduce.__file__).parent
FLOORS = [
    {"errors", "library", "screen", "units"},
    {"algorithms", "memory"},
    {"codecs", "simulate", "decisions"},
    {"runtime"},
    {"overlap", "bench", "torch"},
    {"tuning"},
    {"__main__", "__init__"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
NO_MPI = {"algorithms", "memory", "codecs", "simulate", "decisions"}
FILES = sorted(HOUSE.rglob("*.py"))


def imports(path):
    """(Room, or None where it is another package; the module) of all imports in a file."""
    package = path.relative_to(HOUSE.parent).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((None, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            whole = (*package[: len(package) - node.level + 1], *(node.module or "").split(".")) if node.level else ()
            if not whole:
                yield None, node.module
            elif len(whole) > 1 and whole[1]:
                yield whole[1], ".".join(whole)
            else:
                yield from ((alias.name if alias.name in FLOOR else "__init__", alias.name) for alias in node.names)


def test_every_room_has_a_floor():
    assert {path.relative_to(HOUSE).parts[0].removesuffix(".py") for path in FILES} == set(FLOOR)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_nothing_is_imported_from_above(path):
    room = path.relative_to(HOUSE).parts[0].removesuffix(".py")
    for other, module in imports(path):
        if other is None:
            assert room not in NO_MPI or module.partition(".")[0] != "mpi4py", f"{room} knows no MPI, imports {module}"
        elif other != "__init__":  # the version and lazily loaded names
            assert FLOOR[other] <= FLOOR[room], f"{room} imports {module}, which is above it"
