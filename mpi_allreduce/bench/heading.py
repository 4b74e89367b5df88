"""What was measured and where, in one line: the same on the screen, in records shown later, and above figures."""

import re

__all__ = ["heading", "library_name"]

_LIBRARIES = {
    "Open MPI": r"Open MPI v([\w.]+)",
    "Cray MPICH": r"CRAY MPICH version ([\w.]+)",
    "MPICH": r"MPICH Version:\s*([\w.]+)",
    "Intel MPI": r"Intel\(R\) MPI Library ([\w.]+)",
}


def library_name(description: str) -> str:
    """The name in the text of MPI_Get_library_version: ``MPICH 5.0.2``, ``Open MPI 5.0.11``."""
    for name, pattern in _LIBRARIES.items():
        if match := re.search(pattern, description):
            return f"{name} {match[1]}"
    return description.split("\n")[0].split(",")[0]


def heading(environment: dict, settings: dict) -> str:
    """One line about a launch, from the ``environment`` and the ``settings`` of its record."""
    hosts, cores = environment["hosts"], environment["cores_on_host"]
    crowded = max(hosts.values()) > cores
    return (
        f"{environment['ranks']} ranks on {len(hosts)} host{'s' * (len(hosts) > 1)} with {cores} cores"
        f"{' (fewer than ranks: an overloaded machine)' if crowded else ''}, {environment['cpu']}, "
        f"{library_name(environment['mpi_library'])}; {settings['op']} of {settings['dtype']}, "
        f"{'in place' if settings['in_place'] else 'out of place'}, {settings['mode']}, "
        f"{settings['buffers'] or 'rotating'} buffers, "
        f"skew {settings['skew']}, data {settings['data']}"
    )
