"""Interpreters of schedules that need no MPI: the verifier, and what travels."""

from .verifier import Proof, ScheduleError, verify
from .wire import result_bound, wire_bytes

__all__ = ["Proof", "ScheduleError", "result_bound", "verify", "wire_bytes"]
