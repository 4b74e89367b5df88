"""Interpreters of schedules that need no MPI: the verifier, what travels, and clocks on simulated networks."""

from .clock import Simulated, simulate
from .machine import Machine
from .topology import Dragonfly, FatTree, Flat, Topology, Torus, topology
from .verifier import Proof, ScheduleError, verify
from .wire import result_bound, wire_bytes

__all__ = [
    "Dragonfly", "FatTree", "Flat", "Machine", "Proof", "ScheduleError", "Simulated", "Topology", "Torus",
    "result_bound", "simulate", "topology", "verify", "wire_bytes",
]  # fmt: skip
