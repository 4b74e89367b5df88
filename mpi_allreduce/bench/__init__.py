"""The benchmark: cases, timing, validation, records.  Reading records needs no MPI; :mod:`.run` does."""

from .records import pool, read, read_launches, read_probes

__all__ = ["pool", "read", "read_launches", "read_probes"]
