"""The numbers that are reduced: real-looking ones to be timed, and integers whose result is known exactly."""

from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import numpy as np

from ..memory import BFLOAT16, OPERATORS, Device, Kind, allocate, kind_of, widened

__all__ = ["Arena", "exact_input", "exact_result", "load", "rotation"]

PERIOD = 1021  # a prime, so that blocks of equal length hold different numbers
PAGE = 4096
MOST_BUFFERS = 16


def rotation(size: int, cache_bytes: int, ranks_on_node: int) -> int:
    """How many pairs of buffers of ``size`` bytes, on each rank, are twice as large as the last-level cache."""
    wanted = 2 * cache_bytes / (2 * size * ranks_on_node)
    return int(min(max(np.ceil(wanted), 1), MOST_BUFFERS))


class Arena:
    """Send and receive memory from which all cases take their buffers.

    Buffer 0 starts at the beginning whatever its size; so what is known of the largest case's data holds for all.

    Attributes
    ----------
    source : ndarray, shape (count,)
        The data to be timed, in host memory; never written after it was filled.
    """

    def __init__(
        self, data: str, dtype: np.dtype, bytes_needed: int, rank: int, seed: int, device: Device | None = None
    ):
        count = -(-bytes_needed // dtype.itemsize)
        self.source = allocate(count, dtype)
        self.source[:] = load(data, dtype, count, rank, seed)
        self._device = device
        make = allocate if device is None else device.empty
        self._send, self._receive = make(count, dtype), make(count, dtype)
        self.put(self._send, self.source)
        self.put(self._receive, self.source)  # touches every page

    def put(self, buffer, values: np.ndarray) -> None:
        """Fill a buffer from host memory."""
        if self._device is None:
            np.copyto(buffer, values)
        else:
            self._device.put(buffer, values)

    def get(self, buffer) -> np.ndarray:
        """What a buffer holds, in host memory."""
        return buffer if self._device is None else self._device.get(buffer)

    def buffers(self, size: int, number: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """``number`` triples (send buffer, receive buffer, data that belongs in the send buffer) of ``size`` bytes."""
        itemsize = self.source.dtype.itemsize
        for i in range(number):
            part = slice(i * stride(size, itemsize), i * stride(size, itemsize) + size // itemsize)
            yield self._send[part], self._receive[part], self.source[part]


def stride(size: int, itemsize: int) -> int:
    """Elements from one buffer to the next: whole pages, and a cache line more so that pages do not alias."""
    unit = np.lcm(itemsize, 64)
    return int(-(-(-(-size // PAGE) * PAGE + 64) // unit) * unit // itemsize)


def load(data: str, dtype: np.dtype, count: int, rank: int, seed: int) -> np.ndarray:
    """``count`` elements for one rank.

    Parameters
    ----------
    data : str
        ``normal`` (standard normal deviates, or for integer types small integers of both signs), ``integers`` (see
        :func:`exact_input`, for SUM), or a .npy file: cut or tiled to ``count``, converted to ``dtype``.  ``{rank}``
        in its name stands for the rank; without, each rank starts at another element.

    Raises
    ------
    ValueError
        If the file cannot be read, or holds nothing that can be converted.
    """
    if data == "integers":
        return np.resize(exact_input("SUM", dtype, rank, rank + 1), count)
    if data == "normal":
        return _random(dtype, count, np.random.default_rng([seed, rank]), rank)
    return _from_file(data, dtype, count, rank)


def _from_file(name: str, dtype: np.dtype, count: int, rank: int) -> np.ndarray:
    path = Path(name.replace("{rank}", str(rank)))
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False).reshape(-1)
    except (OSError, ValueError) as error:
        raise ValueError(f"data: expected normal, integers or a .npy file, got {name!r}: {error}") from None
    if values.size == 0 or values.dtype.kind not in "biufc" or dtype.names:
        raise ValueError(f"data: {path} holds {values.size} elements of {values.dtype}; numbers are needed")
    start = 0 if "{rank}" in name else rank * 7919 % values.size
    chosen = np.concatenate([values[start : start + count], values[:start]])[:count].astype(dtype)
    if not np.isfinite(chosen.astype(widened(dtype))).all():
        raise ValueError(f"data: {path} holds NaN or numbers infinite in {dtype}; their sums cannot be judged")
    return np.resize(chosen, count)


def _random(dtype: np.dtype, count: int, rng: np.random.Generator, rank: int) -> np.ndarray:
    kind = kind_of(dtype)
    if kind is Kind.PAIR:
        pairs = np.zeros(count, dtype)
        value, index = dtype.names
        pairs[value] = _random(dtype[value], count, rng, rank)
        pairs[index] = rank
        return pairs
    if kind is Kind.LOGICAL:
        return rng.random(count) < 0.5
    if kind is Kind.INTEGER:
        return rng.integers(0 if dtype.kind == "u" else -100, 100, count, endpoint=True).astype(dtype)
    real = rng.standard_normal(count, np.float32)
    if kind is Kind.COMPLEX:
        return (real + 1j * rng.standard_normal(count, np.float32)).astype(dtype)
    return real.astype(dtype)


def exact_input(op: str, dtype: np.dtype, rank: int, size: int, count: int = PERIOD) -> np.ndarray:
    """Integers, repeating after ``PERIOD`` elements, that no order of combining can round.

    Returns
    -------
    ndarray, shape (count,)
    """
    i = np.arange(PERIOD)
    mixed = (i * (i + 31) * (2 * rank + 1) + rank * 17) % PERIOD % 101  # quadratic: no shorter period
    kind = kind_of(dtype)
    if kind is Kind.PAIR:
        pairs = np.zeros(PERIOD, dtype)
        pairs[dtype.names[0]] = mixed % 7  # ties are frequent
        pairs[dtype.names[1]] = (rank * 5 + i) % 127
        values = pairs
    elif op == "PROD":
        # At most 2^4 in each element, whatever the number of ranks, and not in each element the same.
        values = np.where((rank < 4) & ((mixed + rank) % 3 > 0), 2, 1)
    elif op in ("SUM", "AVG"):
        limit = _largest_exact(dtype)
        width = max(1, min(5, limit // size))
        values = (mixed % (2 * width + 1) - (width if dtype.kind != "u" else 0)) * (rank < limit)
    else:
        values = mixed if kind is not Kind.LOGICAL else mixed % 3 > 0
    return np.resize(values.astype(dtype), count)


def _largest_exact(dtype: np.dtype) -> int:
    """All integers up to this one have the type's full precision."""
    if dtype == BFLOAT16:
        return 1 << 8
    if kind_of(dtype) in (Kind.FLOATING, Kind.COMPLEX):
        return 1 << (np.finfo(dtype).nmant + 1)
    return np.iinfo(dtype).max  # sums beyond it wrap around, which is exact too


def exact_result(op: str, dtype: np.dtype, size: int) -> np.ndarray:
    """One period of the reduction of :func:`exact_input` over ``size`` ranks, combined without MPI.

    Returns
    -------
    ndarray, shape (PERIOD,)
    """
    operator = OPERATORS[op]
    kernel = operator.kernel(dtype, PERIOD)

    def combine(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        kernel(left, right, out=left)
        return left

    with np.errstate(over="ignore"):
        return reduce(combine, (exact_input(op, dtype, rank, size) for rank in range(size)))
