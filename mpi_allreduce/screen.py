"""Where tables are printed."""

import os
import sys

from rich.console import Console

__all__ = ["console"]


def console(width: int) -> Console:
    """A console on standard output that never cuts a table of ``width`` columns.

    Launchers make standard output a pipe, or (Open MPI) a terminal without a size, which is none that anyone looks at.
    """
    try:
        columns = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return Console(highlight=False, force_terminal=columns > 0, width=max(columns, width))
