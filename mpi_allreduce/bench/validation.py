"""Is the result right?  Asked before a case is timed, and once more after."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
from mpi4py import MPI

from ..codecs import Bound
from ..memory import OPERATORS, Kind, kind_of, widened
from ..memory.operators import divide
from ..runtime import plan
from .inputs import exact_input, exact_result

__all__ = ["Reference", "Validation", "Validator"]


MOST = 1 << 22  # elements: wide copies of larger buffers would not fit beside them


@dataclass(frozen=True)
class Validation:
    """What was found.

    Attributes
    ----------
    wrong : int
        Elements, over all ranks, that differ from the exact result of integers or exceed the error bound.
    error : float
        Relative L2 error, on the data that is timed (its first 4 Mi elements), against the same reduction in a wider
        type; 0 where the type is exact, the largest of any rank.
    identical : bool
        Whether all ranks hold the same bits.
    repeatable : bool
        Whether the last timed run gave the same bits as the first one.
    max_error : float
        The largest error of any element, on the same data.
    bound : float
        With a codec: the a-priori bound of ``error`` (inf if it has none), beyond which all elements count as wrong.
    """

    wrong: int
    error: float
    identical: bool
    repeatable: bool = True
    max_error: float = 0.0
    bound: float = 0.0


class Reference:
    """The reduction of the timed data in a wider type, and how far a correct result may be from it.

    Made once for the largest case, up to ``MOST`` elements: smaller ones are its beginning.  The wide reduction is
    MPI_Allreduce's, the only thing here that the vendor is trusted with; integer inputs are judged without it.
    """

    def __init__(self, comm: MPI.Intracomm, source: np.ndarray, op: str):
        source = source[:MOST]
        wide = widened(source.dtype)
        operator = OPERATORS[op]
        self.exact = kind_of(source.dtype) not in (Kind.FLOATING, Kind.COMPLEX) or op in ("MIN", "MAX")
        self.wide = wide
        mine = source.astype(wide)
        self.values = plan(comm, mine, op=operator, algorithm="vendor")()
        if self.exact:
            self.bound = None
            return
        if op == "PROD":  # a factor that underflows on the way may be of any size in the end; integers judge products
            self.bound = np.full(mine.shape, np.inf)
            return
        total = plan(comm, np.abs(mine), op=OPERATORS["SUM"], algorithm="vendor")()
        if operator.mean:
            divide(total, comm.size)
        # Each of p-1 additions (and the division) rounds by at most half an ulp of a partial sum <= total.
        limits = ml_dtypes.finfo(source.dtype)
        roundings = max(comm.size - 1, 1) + 1
        # The sum over ranks of the L2 norms of their first n elements, for every n.
        mine = np.sqrt(np.cumsum(np.square(np.abs(mine)).astype(np.float64)))
        self.norms = plan(comm, mine, op=OPERATORS["SUM"], algorithm="vendor")()
        if operator.mean:
            divide(self.norms, comm.size)
        self.bound = roundings * (total * float(limits.eps) + float(limits.smallest_subnormal))

    def judge(self, result: np.ndarray, limit: float | None = None) -> tuple[int, float, float]:
        """Wrong elements, the relative L2 error and the largest error, of a result on this rank.

        With a ``limit`` of the L2 error, that of an encoded sum, either all elements are wrong or none is.
        """
        result = result[:MOST]
        values = self.values[: result.size]
        if self.exact:
            return int(np.count_nonzero(result != values)), 0.0, 0.0
        difference = np.abs(result.astype(self.wide) - values)
        norm, error = _norm(values), _norm(difference)
        if limit is None:
            wrong = np.count_nonzero(~(difference <= self.bound[: result.size]))
        else:
            wrong = 0 if error <= limit else result.size
        return int(wrong), error / norm if norm else 0.0, float(difference.max(initial=0))

    def limit(self, bound: Bound, count: int) -> float:
        """The largest L2 error that a codec's bound allows in the first ``count`` elements."""
        count = min(count, self.values.size)
        # Rounding of the data's own type comes on top, where that is coarser than float32.
        return bound.relative * float(self.norms[count - 1]) + bound.absolute * count**0.5 + _norm(self.bound[:count])

    def relative(self, limit: float, count: int) -> float:
        """A limit in terms of the exact result's norm."""
        norm = _norm(self.values[:count])
        return limit / norm if norm else 0.0


class Validator:
    """Judges runs of the cases of one launch.

    Parameters
    ----------
    comm : Intracomm
    op : str
    source : ndarray
        The data of the largest case's first buffer.
    """

    def __init__(self, comm: MPI.Intracomm, op: str, source: np.ndarray):
        self.comm = comm
        self.op = op
        self.mine = exact_input(op, source.dtype, comm.rank, comm.size)
        self.expected = exact_result(op, source.dtype, comm.size)
        if OPERATORS[op].mean:
            divide(self.expected, comm.size)
        self.reference = Reference(comm, source, op)

    def judge(
        self, run: Callable[[np.ndarray], np.ndarray], source: np.ndarray, bound: Bound | None = None
    ) -> tuple[Validation, int]:
        """Validate ``run``, which reduces the given input and returns the result.

        Integers, whose exact sum is known, serve only without a codec; with one, its a-priori ``bound`` does.

        Returns
        -------
        Validation
            The same on all ranks.
        int
            This rank's digest of the result on ``source``, to be compared with later runs.
        """
        count = source.size
        wrong, limit = 0, None
        if bound is None:
            result = run(np.resize(self.mine, count))
            wrong = int(np.count_nonzero(result != np.resize(self.expected, count)))
        else:
            limit = self.reference.limit(bound, count)
        result = run(source)
        out_of_bound, error, largest = self.reference.judge(result, limit)
        mine = digest(result)
        found = self.comm.allgather((wrong + out_of_bound, error, largest, mine))
        wrong, errors, largest, digests = zip(*found, strict=True)
        validation = Validation(
            wrong=sum(wrong),
            error=max(errors),
            identical=len(set(digests)) == 1,
            max_error=max(largest),
            bound=0.0 if limit is None else self.reference.relative(limit, count),
        )
        return validation, mine

    def judge_again(
        self, before: Validation, result: np.ndarray, bits: int, bound: Bound | None = None, *, repeats: bool
    ) -> Validation:
        """Add what a later result on the same data shows to what was found before; collective.

        An algorithm that always ``repeats`` its bits is wrong where it does not; others may be off by rounding.
        """
        same = digest(result) == bits
        limit = None if bound is None else self.reference.limit(bound, result.size)
        wrong = 0 if same else max(self.reference.judge(result, limit)[0], int(repeats))
        found = self.comm.allgather((wrong, same))
        return replace(before, wrong=before.wrong + sum(w for w, _ in found), repeatable=all(same for _, same in found))


def _norm(values: np.ndarray) -> float:
    """L2 norm without BLAS, whose threads would go on spinning into the next measurement."""
    return float(np.sqrt(np.sum(np.square(np.abs(values)))))


def digest(result: np.ndarray) -> int:
    """Fingerprint of the bits of an array (of pairs without their padding), at the speed of memory."""
    fields = [np.ascontiguousarray(result[name]) for name in result.dtype.names] if result.dtype.names else [result]
    fingerprint = 0
    for values in fields:
        fingerprint = zlib.crc32(values.view(np.uint8), fingerprint)
    return fingerprint
