"""Running schedules on MPI: plans, the calls that users make, and the vendor's MPI_Allreduce likewise."""

from .agreement import DisagreementError
from .arguments import as_operator
from .awareness import Awareness, claimed
from .calls import allreduce, explain, iallreduce, plan
from .communicator import cuda_awareness, use_local_device
from .execution import UnsupportedError
from .methods import algorithm_names, check_codec, check_name, is_vendor
from .nonfinite import NonFiniteError
from .plans import Plan
from .progress import UnfinishedError, progress_thread
from .rates import device_limits
from .replicas import DivergedError

__all__ = [
    "Awareness", "DisagreementError", "DivergedError", "NonFiniteError", "Plan", "UnfinishedError", "UnsupportedError",
    "algorithm_names", "allreduce", "as_operator", "check_codec", "check_name", "claimed", "cuda_awareness",
    "device_limits", "explain", "iallreduce", "is_vendor", "plan", "progress_thread", "use_local_device",
]  # fmt: skip
