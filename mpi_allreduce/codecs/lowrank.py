"""PowerSGD: a matrix as the product of two narrow ones, found by one step of a power iteration shared by all ranks."""

from dataclasses import dataclass

import numpy as np

from .codec import CHUNK
from .registry import codec

__all__ = ["PowerSGD", "make_orthonormal", "product", "times", "transposed_times"]

SEED = 20190905  # of the first Q, the same on all ranks


@dataclass(frozen=True)
class PowerSGD:
    """Rank-``rank`` approximation of a 2-D array M of shape (a, b).

    P = M Q is summed over the ranks and its columns are made orthonormal; Q = M^T P is summed; the result is P Q^T.
    Both sums travel as they are, by any algorithm: rank (a + b) numbers instead of a b.  A plan keeps Q for its next
    run, and with it follows the best approximation over time; ``allreduce`` begins anew in each call.  A biased method,
    which needs error feedback.

    It is no wire format of blocks: what is summed is linear in the contributions, so nothing is encoded again.

    Source: T. Vogels, S. P. Karimireddy, M. Jaggi: PowerSGD, NeurIPS 2019.
    """

    name: str
    rank: int

    fixed = True
    chance = True  # Q changes from run to run
    largest = float(np.finfo(np.float32).max)

    def start(self, shape: tuple[int, int], dtype: np.dtype) -> np.ndarray:
        """The first Q, shape (b, rank); never more columns than either side has."""
        rank = min(self.rank, *shape)
        return np.random.default_rng(SEED).standard_normal((shape[1], rank)).astype(dtype)


def make_orthonormal(matrix: np.ndarray) -> None:
    """Replace columns by orthonormal ones that span the same (Gram-Schmidt, twice over); dependent ones become zero.

    Elementwise operations and sums, as every processor rounds these alike: LAPACK's and BLAS's kernels differ from one
    model to the next, and all ranks must hold the same bits.
    """
    tiny = np.finfo(matrix.dtype).eps * max(matrix.shape)
    for i in range(matrix.shape[1]):
        column = matrix[:, i].copy()
        before = np.sqrt(np.sum(column * column))
        for j in (*range(i), *range(i)):
            column -= np.sum(matrix[:, j] * column) * matrix[:, j]
        norm = np.sqrt(np.sum(column * column))
        matrix[:, i] = column / norm if norm > tiny * before else 0


def times(matrix: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    """``out = matrix @ right``, of few columns; BLAS's threads would take the cores of other ranks."""
    for part in _rows(matrix):
        for k in range(right.shape[1]):
            np.add.reduce(matrix[part] * right[:, k], axis=1, out=out[part, k])


def transposed_times(matrix: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    """``out = matrix.T @ right``, likewise."""
    out[:] = 0
    for part in _rows(matrix):
        for k in range(right.shape[1]):
            out[:, k] += np.add.reduce(matrix[part] * right[part, k : k + 1], axis=0)


def product(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
    """``out = left @ right.T``, of few columns; elementwise for the same reason."""
    for part in _rows(out):
        np.multiply(left[part, :1], right[:, 0], out=out[part])
        for k in range(1, left.shape[1]):
            out[part] += left[part, k : k + 1] * right[:, k]


def _rows(matrix: np.ndarray):
    """Rows at a time, so that temporaries stay in the cache."""
    step = max(CHUNK // max(matrix.shape[1], 1), 1)
    return (slice(start, start + step) for start in range(0, len(matrix), step))


@codec("powersgd", default="4", rank=int)
def powersgd(name: str, rank: int = 4) -> PowerSGD:
    """Make a PowerSGD codec."""
    if rank < 1:
        raise ValueError(f"codec: rank is at least 1, got {rank}")
    return PowerSGD(name, rank)
