"""Interpreters of schedules that need no MPI: today the verifier."""

from .verifier import Proof, ScheduleError, verify

__all__ = ["Proof", "ScheduleError", "verify"]
