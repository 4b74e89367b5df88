"""The name of an MPI library."""

import re

__all__ = ["library_name"]

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
