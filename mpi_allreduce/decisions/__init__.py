"""Which algorithm where: decision tables made of records, and rules for where there is none.  No MPI."""

from .rules import built_in
from .table import Choice, DecisionTable, Entry, Rule, Situation, read_table

__all__ = ["Choice", "DecisionTable", "Entry", "Rule", "Situation", "built_in", "read_table"]
