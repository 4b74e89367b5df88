"""The benchmark: cases, timing, validation, records.  Reading records needs no MPI; :mod:`.run` does."""

from .records import read, read_launches

__all__ = ["read", "read_launches"]
