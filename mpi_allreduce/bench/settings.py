"""What a benchmark run is asked to do, and the cases that follow from it."""

import re
from dataclasses import dataclass

import numpy as np

from ..codecs import NONE
from ..memory import dtype_named, name_of

__all__ = ["MEMORIES", "Case", "Settings", "all_cases", "format_bytes", "parse_bytes", "parse_rate", "parse_sizes"]

MODES = ("isolated", "streaming")
MEMORIES = ("host", "device")
NEVER_ENCODED = ("vendor", "vendor_persistent", "nccl", "reproducible", "shared")  # left out where there is a codec
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


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


def parse_bytes(text: str) -> int:
    """``4``, ``64K``, ``1.5M``, ``2GiB`` -> bytes; the units are powers of 1024.

    Raises
    ------
    ValueError
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match or float(match[1]) == 0:
        raise ValueError(f"size: expected a number of bytes such as 4, 64K or 1M, got {text!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def parse_rate(text: str) -> float:
    """``100mbit``, ``25gbit`` -> bits per second.

    Raises
    ------
    ValueError
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)bit", text.strip(), re.IGNORECASE)
    if not match or not float(match[1]):
        raise ValueError(f"rate: expected a rate such as 100mbit or 25gbit, got {text!r}")
    return float(match[1]) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[match[2].lower()]


def parse_sizes(text: str) -> tuple[int, ...]:
    """``4:16M`` (times 4 from step to step), ``1K:1M:2`` (with a factor), ``4,1K,1M`` (a list), or a mixture.

    Raises
    ------
    ValueError
    """
    sizes: set[int] = set()
    for part in text.split(","):
        if ":" not in part:
            sizes.add(parse_bytes(part))
            continue
        first, last, *rest = part.split(":")
        low, high = parse_bytes(first), parse_bytes(last)
        try:
            (factor,) = map(float, rest or ["4"])
        except ValueError:
            raise ValueError(f"size: expected FIRST:LAST or FIRST:LAST:FACTOR, got {part!r}") from None
        if factor <= 1 or low < 1 or high < low:
            raise ValueError(f"size: {part!r} needs 1 <= FIRST <= LAST and a FACTOR above 1")
        size = float(low)
        while size <= high:
            sizes.add(int(size))
            size *= factor
    return tuple(sorted(sizes))


def format_bytes(size: int) -> str:
    """``65536`` -> ``64 KiB``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"
