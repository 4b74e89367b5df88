"""Arguments of a call, checked as far as one rank can, before anything is sent."""

import os
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from ..codecs import NONE, Codec, ErrorFeedback, PowerSGD, Residual, get_codec
from ..decisions import Choice
from ..memory import BFLOAT16, OPERATORS, Device, Operator, arrays, kind_of
from .methods import algorithm_names, check_codec, check_name, check_type, keeps_order
from .nonfinite import POLICIES

SEGMENT_BYTES = 4 << 20  # large enough for the wire, small enough that a reduction finds its operand in the cache
MOST_CHANNELS = 64
DIGEST = "MPI_ALLREDUCE_DIGEST"
ENCODED_TYPES = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), BFLOAT16]

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
    result : object
        ``recvbuf`` as the user gave it.
    device : Device or None
        That holds both; None if they are in host memory.
    op : Operator
    algorithm : str
    segment_bytes : int
        Largest message.
    channels : int or None
        Slices that run the schedule independently; None to choose.
    choice : Choice or None
        Why this algorithm, where ``auto`` was asked for.
    codec : Codec or None
    nan : str
        Name of a policy.
    feedback : Residual or None
    digest : bool
        Whether all ranks compare their results.
    shape : tuple of int
        Of both buffers, as they were given.
    """

    comm: MPI.Intracomm
    sendbuf: np.ndarray | None
    recvbuf: np.ndarray
    result: object
    device: Device | None
    op: Operator
    algorithm: str
    segment_bytes: int
    channels: int | None = None
    choice: Choice | None = None
    codec: Codec | None = None
    nan: str = "raise"
    feedback: Residual | None = None
    digest: bool = False
    shape: tuple[int, ...] = ()

    @property
    def in_place(self) -> bool:
        """Whether there is no send buffer."""
        return self.sendbuf is None

    def signature(self) -> dict[str, object]:
        """What must be the same on all ranks."""
        return {
            "count": self.recvbuf.size,
            "dtype": str(self.recvbuf.dtype),
            "memory": "host" if self.device is None else "device",
            "op": self.op.name,
            "commutative": self.op.commutative,
            "algorithm": self.algorithm,
            "segment_bytes": self.segment_bytes,
            "channels": self.channels,
            "codec": self.codec.name if self.codec else NONE,
            "nan": self.nan,
            "error_feedback": self.feedback is not None,
            "digest": self.digest,
            **({"shape": self.shape} if isinstance(self.codec, PowerSGD) else {}),
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
    codec: str = NONE,
    nan: str = "raise",
    error_feedback: ErrorFeedback | Residual | None = None,
    digest: bool | None = None,
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
        receive, device = _array("recvbuf", recvbuf, writeable=True)
    else:
        send, device = _array("sendbuf", sendbuf)
        recvbuf = _like(send, device) if recvbuf is None else recvbuf
        receive, other = _array("recvbuf", recvbuf, writeable=True)
        if device is not other:
            raise TypeError(
                f"recvbuf: is in {_place(other)}, but sendbuf in {_place(device)}; copy one to where the other is"
            )
        _check_pair(send, receive)
    operator = as_operator(op, commutative)
    operator.kernel(receive.dtype, 1)
    _check_algorithm(algorithm, operator)
    check_type(algorithm, operator, receive.dtype)
    if not isinstance(segment_bytes, int) or not 0 < segment_bytes < 2**31:
        raise ValueError(f"segment_bytes: expected 1 .. 2**31 - 1, got {segment_bytes}")
    if channels is not None and not (isinstance(channels, int) and 1 <= channels <= MOST_CHANNELS):
        raise ValueError(f"channels: expected 1 .. {MOST_CHANNELS}, or None to choose, got {channels!r}")
    found = _check_codec(codec, nan, algorithm, operator, receive)
    feedback = _check_feedback(error_feedback, found, algorithm, receive)
    return Call(
        comm, send, receive, recvbuf, device, operator, algorithm, segment_bytes, channels, codec=found, nan=nan,
        feedback=feedback, digest=_from_environment(DIGEST) if digest is None else bool(digest), shape=receive.shape,
    )  # fmt: skip


def _from_environment(variable: str) -> bool:
    return os.environ.get(variable, "0") not in ("", "0")


def _check_codec(codec: object, nan: object, algorithm: str, op: Operator, receive: np.ndarray) -> Codec | None:
    if not isinstance(codec, str):
        raise TypeError(f'codec: expected a name such as "fp16" or "int8:block=256", got {codec!r}')
    if nan not in POLICIES:
        raise ValueError(f"nan: expected {', '.join(POLICIES)}, got {nan!r}")
    found = get_codec(codec)
    if found is None:
        return None
    low_rank = isinstance(found, PowerSGD)
    if not low_rank:
        check_codec(algorithm)
    if op.name not in ("SUM", "AVG"):
        raise ValueError(
            f"codec: {codec} can be used with op SUM or AVG, not with {op.name}, which would amplify its error"
        )
    types = ENCODED_TYPES[:2] if low_rank else ENCODED_TYPES
    if receive.dtype not in types:
        raise TypeError(f"codec: {codec} encodes {', '.join(map(str, types))}, not {receive.dtype}")
    if low_rank and (receive.ndim != 2 or receive.size == 0):
        raise ValueError(
            f"codec: {codec} needs a 2-D array with elements, got shape {receive.shape}; reduce vectors without it, as "
            "they are small"
        )
    return found


def _check_feedback(given: object, codec: Codec | None, algorithm: str, receive: np.ndarray) -> Residual | None:
    if given is None:
        return None
    if codec is None:
        raise ValueError('error_feedback: without a codec nothing is dropped; leave it out, or give codec="..."')
    if algorithm == "shared" and not isinstance(codec, PowerSGD):
        raise ValueError("error_feedback: shared sends nothing, so nothing is dropped; leave it out")
    if not isinstance(given, ErrorFeedback | Residual):
        raise TypeError(f"error_feedback: expected an ErrorFeedback or one of its buckets, got {type(given).__name__}")
    residual = given.bucket() if isinstance(given, ErrorFeedback) else given
    if residual.residual.size != receive.size or residual.residual.dtype != receive.dtype:
        raise ValueError(
            f"error_feedback: has {residual.residual.size} elements of {residual.residual.dtype}, but the buffer "
            f"{receive.size} of {receive.dtype}"
        )
    return residual


def _array(name: str, value: object, *, writeable: bool = False) -> tuple[np.ndarray, Device | None]:
    """The array, NumPy's or a device's, without a copy; and the device."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: a masked array's mask cannot be reduced; pass its .filled(...)")
    try:
        array, device = arrays.on_host(value), None
        if array is None and arrays.is_cuda(value):
            device = arrays.cuda_device(value)
            array = device.array(value)
        if array is None:
            raise TypeError(f"expected an array of NumPy, CuPy or PyTorch, got {type(value).__name__}")
        kind_of(array.dtype)
    except (TypeError, ModuleNotFoundError, RuntimeError) as error:
        raise type(error)(f"{name}: {error}") from None
    if not array.flags.c_contiguous:
        raise ValueError(
            f"{name}: an array of shape {array.shape} and strides {array.strides} is not C-contiguous; "
            "pass numpy.ascontiguousarray(...)"
        )
    if writeable and device is None and not array.flags.writeable:
        raise ValueError(f"{name}: is read-only; pass a writeable array")
    return (np.asarray(array) if device is None else array), device


def _like(array, device: Device | None):
    if device is None:
        return np.empty_like(array, subok=False)
    return device.empty(array.size, array.dtype).reshape(array.shape)


def _place(device: Device | None) -> str:
    return "host memory" if device is None else device.name


def _check_pair(send: np.ndarray, receive: np.ndarray) -> None:
    if receive.dtype != send.dtype:
        raise TypeError(f"recvbuf: dtype {receive.dtype} differs from sendbuf's {send.dtype}")
    if receive.shape != send.shape:
        raise ValueError(f"recvbuf: shape {receive.shape} differs from sendbuf's {send.shape}")
    first, second = arrays.address(send), arrays.address(receive)
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
