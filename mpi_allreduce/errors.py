"""Errors that the command line reports in a line instead of a traceback."""

__all__ = ["UsageError"]


class UsageError(ValueError):
    """Something that the user can mend; raised on every rank, before anything is timed."""
