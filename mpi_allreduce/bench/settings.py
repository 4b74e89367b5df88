"""What a benchmark run is asked to do, and the cases that follow from it."""

from dataclasses import dataclass

import numpy as np

from ..codecs import NONE
from ..memory import dtype_named, name_of
from ..units import format_bytes

__all__ = ["MEMORIES", "Case", "Settings", "all_cases"]

MODES = ("isolated", "streaming")
MEMORIES = ("host", "device")
NEVER_ENCODED = (
    "vendor", "vendor_persistent", "vendor_reduce_bcast", "vendor_reduce_scatter_allgather", "nccl", "reproducible",
    "shared",
)  # fmt: skip
"""Left out where there is a codec."""


@dataclass(frozen=True)
class Case:
    """What distinguishes one measurement from the others of a launch.

    Attributes
    ----------
    algorithm : str
    bytes : int
        Size of the buffer on each rank.
    codec : str
    """

    algorithm: str
    bytes: int
    codec: str = NONE

    def __str__(self) -> str:
        return f"{self.algorithm} {'' if self.codec == NONE else f'{self.codec} '}{format_bytes(self.bytes)}"


@dataclass(frozen=True)
class Settings:
    """The settings of a launch; see the command line's help for their meaning.

    Attributes
    ----------
    algorithms : tuple of str
    sizes : tuple of int
        Bytes per rank, ascending.
    dtype : dtype
    op : str
        Name of an operator.
    in_place : bool
    data : str
        ``normal``, ``integers``, or the name of a .npy file.
    mode : str
        ``isolated`` (ranks start every repetition together) or ``streaming`` (back to back).
    skew : str
        How ranks arrive: ``none``, or ``late:F``, ``linear:F``, ``random:F`` with F in units of the vendor's time.
    buffers : int
        Pairs of buffers to rotate among; 1 keeps the cache hot; 0 takes as many as are twice the last-level cache, but
        at most 16: below about 1 MiB that is less than the cache.  In place, restoring warms the buffer anyway.
    ci : float
        A case is done when the confidence interval's half-width is below this fraction of the median.
    max_seconds : float
        For all cases together.
    passes : int
        How often every case is visited, at least.
    repetitions : tuple of int
        At least and at most so many in each visit.
    bind : bool
        Give each rank a core of its own if the launcher did not.
    seed : int
    label : str
    stall_seconds : float
        Abort if nothing was finished for so long.
    line_rate : float
        Bits per second of a link, to compare bus bandwidth with; 0 if unknown.
    codecs : tuple of str
    probe_seconds : float
        For round trips, exchanges and additions before the cases (see :mod:`.probes`); 0 leaves them out.
    memory : str
        ``host``, or ``device``: each rank's CUDA device.
    """

    algorithms: tuple[str, ...]
    sizes: tuple[int, ...]
    dtype: np.dtype
    op: str = "SUM"
    in_place: bool = False
    data: str = "normal"
    mode: str = "isolated"
    skew: str = "none"
    buffers: int = 0
    ci: float = 0.03
    max_seconds: float = 60.0
    passes: int = 6
    repetitions: tuple[int, int] = (5, 1_000)
    bind: bool = True
    seed: int = 1
    label: str = ""
    stall_seconds: float = 300.0
    line_rate: float = 0.0
    codecs: tuple[str, ...] = (NONE,)
    probe_seconds: float = 2.0
    memory: str = "host"

    def as_dict(self) -> dict[str, object]:
        """Plain values for a record."""
        return {**self.__dict__, "dtype": name_of(self.dtype)}

    @classmethod
    def from_dict(cls, values: dict) -> "Settings":
        """The settings of a record."""
        lists = ("algorithms", "sizes", "repetitions", "codecs")
        tuples = {key: tuple(values[key]) for key in lists if key in values}
        return cls(**{**values, **tuples, "dtype": dtype_named(values["dtype"])})


def all_cases(settings: Settings) -> list[Case]:
    """Every algorithm at every size with every codec that it can use, sizes being whole elements and at least one."""
    itemsize = settings.dtype.itemsize
    sizes = sorted({max(size // itemsize, 1) * itemsize for size in settings.sizes})
    return [
        Case(algorithm, size, codec)
        for size in sizes
        for algorithm in settings.algorithms
        for codec in settings.codecs
        if codec == NONE or algorithm.partition(":")[0] not in NEVER_ENCODED
    ]
