"""Allreduce on mpi4py: which algorithm is right on this machine, by how much, and can I run it?

>>> import numpy as np, mpi_allreduce
>>> from mpi4py import MPI
>>> mpi_allreduce.allreduce(MPI.COMM_WORLD, np.ones(3), algorithm="circulant")  # doctest: +SKIP
array([4., 4., 4.])

The names below are loaded when they are first used, so that help, proofs and analysis work where there is no MPI.
"""

from importlib import import_module

__version__ = "0.1.0"

_OPERATORS = ["SUM", "PROD", "MIN", "MAX", "LAND", "LOR", "LXOR", "BAND", "BOR", "BXOR", "MINLOC", "MAXLOC", "AVG"]
_HOME = {
    **dict.fromkeys(["allreduce", "iallreduce", "plan", "Plan", "explain", "algorithm_names"], ".runtime"),
    **dict.fromkeys(["progress_thread", "DisagreementError", "UnfinishedError", "UnsupportedError"], ".runtime"),
    **dict.fromkeys(["NonFiniteError", "DivergedError", "use_local_device"], ".runtime"),
    "GradientSync": ".overlap.synchroniser",
    **dict.fromkeys(["ErrorFeedback", "codec_names"], ".codecs"),
    **dict.fromkeys([*_OPERATORS, "Operator", "pair_dtype"], ".memory"),
    **dict.fromkeys(["verify", "ScheduleError"], ".simulate"),
}

__all__ = [*_HOME, "IN_PLACE"]


def __getattr__(name: str):
    if name == "torch":
        return import_module(".torch", __name__)
    if name == "IN_PLACE":
        from mpi4py import MPI

        return MPI.IN_PLACE
    if name in _HOME:
        return getattr(import_module(_HOME[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
