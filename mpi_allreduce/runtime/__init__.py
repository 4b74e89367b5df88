"""Running schedules on MPI: plans, the calls that users make, and the vendor's MPI_Allreduce likewise."""

from .agreement import DisagreementError
from .arguments import algorithm_names, as_operator
from .calls import allreduce, plan
from .plans import Plan
from .vendor import VENDORS, UnsupportedError

__all__ = [
    "VENDORS", "DisagreementError", "Plan", "UnsupportedError", "algorithm_names", "allreduce", "as_operator", "plan",
]  # fmt: skip
