"""Arguments of a call, checked as far as one rank can, before anything is sent."""

from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from ..memory import OPERATORS, Operator, kind_of
from ..tuning import Choice
from .methods import algorithm_names, check_name, check_type, keeps_order

SEGMENT_BYTES = 4 << 20  # large enough for the wire, small enough that a reduction finds its operand in the cache
MOST_CHANNELS = 64

__all__ = ["SEGMENT_BYTES", "Call", "as_operator", "check_call", "check_comm"]

_FROM_MPI = {getattr(MPI, name).handle: op for name, op in OPERATORS.items() if hasattr(MPI, name)}


@dataclass(frozen=True)
class Call:
    """One allreduce, with valid arguments.

    Attributes
    ----------
    comm : Intracomm
        The user's communicator.
    sendbuf : ndarray or None
        The contribution; None if it is in ``recvbuf`` (in place).
    recvbuf : ndarray
        Where the result goes; same dtype and shape as ``sendbuf``.
    op : Operator
    algorithm : str
    segment_bytes : int
        Largest message.
    channels : int or None
        Slices that run the schedule independently; None to choose.
    choice : Choice or None
        Why this algorithm, where ``auto`` was asked for.
    """

    comm: MPI.Intracomm
    sendbuf: np.ndarray | None
    recvbuf: np.ndarray
    op: Operator
    algorithm: str
    segment_bytes: int
    channels: int | None = None
    choice: Choice | None = None

    @property
    def in_place(self) -> bool:
        """Whether there is no send buffer."""
        return self.sendbuf is None

    def signature(self) -> dict[str, object]:
        """What must be the same on all ranks."""
        return {
            "count": self.recvbuf.size,
            "dtype": str(self.recvbuf.dtype),
            "op": self.op.name,
            "commutative": self.op.commutative,
            "algorithm": self.algorithm,
            "segment_bytes": self.segment_bytes,
            "channels": self.channels,
        }


def check_comm(comm: object) -> None:
    """Refuse what is not an intracommunicator."""
    if not isinstance(comm, MPI.Comm):
        raise TypeError(f"comm: expected an mpi4py intracommunicator, got {type(comm).__name__}")
    if comm == MPI.COMM_NULL:
        raise ValueError("comm: got COMM_NULL; only the ranks of a communicator may call")
    if comm.Is_inter():
        raise TypeError("comm: got an intercommunicator; merge it first: comm.Merge()")


def check_call(
    comm: MPI.Intracomm,
    sendbuf: object,
    recvbuf: object,
    op: object,
    algorithm: str,
    commutative: bool | None,
    segment_bytes: int = SEGMENT_BYTES,
    channels: int | None = None,
) -> Call:
    """Turn the arguments of a call into a :class:`Call`.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, its value, and what would be accepted.
    """
    check_comm(comm)
    if sendbuf is MPI.IN_PLACE:
        if recvbuf is None:
            raise ValueError("recvbuf: in place (sendbuf=IN_PLACE) the contribution must be given as recvbuf")
        send = None
    else:
        send = _array("sendbuf", sendbuf)
        recvbuf = np.empty_like(send, subok=False) if recvbuf is None else recvbuf
    receive = _array("recvbuf", recvbuf, writeable=True)
    if send is not None:
        _check_pair(send, receive)
    operator = as_operator(op, commutative)
    operator.kernel(receive.dtype, 1)
    _check_algorithm(algorithm, operator)
    check_type(algorithm, operator, receive.dtype)
    if not isinstance(segment_bytes, int) or not 0 < segment_bytes < 2**31:
        raise ValueError(f"segment_bytes: expected 1 .. 2**31 - 1, got {segment_bytes}")
    if channels is not None and not (isinstance(channels, int) and 1 <= channels <= MOST_CHANNELS):
        raise ValueError(f"channels: expected 1 .. {MOST_CHANNELS}, or None to choose, got {channels!r}")
    return Call(comm, send, receive, operator, algorithm, segment_bytes, channels)


def _array(name: str, value: object, *, writeable: bool = False) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name}: expected a NumPy array, got {type(value).__name__}")
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: a masked array's mask cannot be reduced; pass its .filled(...)")
    try:
        kind_of(value.dtype)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    if not value.flags.c_contiguous:
        raise ValueError(
            f"{name}: an array of shape {value.shape} and strides {value.strides} is not C-contiguous; "
            "pass numpy.ascontiguousarray(...)"
        )
    if writeable and not value.flags.writeable:
        raise ValueError(f"{name}: is read-only; pass a writeable array")
    return np.asarray(value)


def _check_pair(send: np.ndarray, receive: np.ndarray) -> None:
    if receive.dtype != send.dtype:
        raise TypeError(f"recvbuf: dtype {receive.dtype} differs from sendbuf's {send.dtype}")
    if receive.shape != send.shape:
        raise ValueError(f"recvbuf: shape {receive.shape} differs from sendbuf's {send.shape}")
    first, second = send.ctypes.data, receive.ctypes.data
    if max(first, second) < min(first + send.nbytes, second + receive.nbytes):
        raise ValueError("recvbuf: overlaps sendbuf; to reduce in place pass sendbuf=IN_PLACE")


def as_operator(op: object, commutative: bool | None = None) -> Operator:
    """An operator from whatever a user may pass as ``op``."""
    if isinstance(op, MPI.Op):
        if op.handle not in _FROM_MPI:
            raise TypeError(f"op: of MPI's own operators only {', '.join(OPERATORS)} can be used; pass a function")
        op = _FROM_MPI[op.handle]
    if isinstance(op, Operator):
        if commutative is not None and commutative != op.commutative:
            raise ValueError(f"commutative: {commutative} contradicts op {op.name}; leave it out")
        return op
    if callable(op):
        return Operator.from_function(op, commutative=bool(commutative))
    raise TypeError(f"op: expected one of {', '.join(OPERATORS)} or a function of two arrays, got {op!r}")


def _check_algorithm(algorithm: str, op: Operator) -> None:
    if not isinstance(algorithm, str):
        raise TypeError(f"algorithm: expected a name, got {algorithm!r}; known are {', '.join(algorithm_names())}")
    check_name(algorithm)
    if not op.commutative and not keeps_order(algorithm):
        raise ValueError(
            f"algorithm: {algorithm!r} reorders operands, but op {op.name} is not commutative; use one of "
            f"{', '.join(algorithm_names(ordered=True))}, or pass commutative=True if the order does not matter"
        )
