"""The two calls that users make: ``allreduce`` and ``plan``."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from mpi4py import MPI

from ..codecs import NONE, ErrorFeedback, Residual
from ..decisions import Choice
from ..memory import SUM, Operator, arrays, borrowed
from .agreement import agree, wanted
from .arguments import SEGMENT_BYTES, Call, check_call, check_comm
from .communicator import Keys, Private, find_plan, private
from .methods import AUTO, is_vendor
from .plans import Plan
from .recent import recall, remember
from .selection import choose, resolved

__all__ = ["allreduce", "explain", "iallreduce", "plan"]

CHANNEL_BYTES = 64 << 10  # between nodes a buffer of more than this is worth cutting into channels
STAGED_BYTES = 1 << 20  # so that one channel crosses the bus while another communicates


def allreduce(
    comm: MPI.Intracomm,
    sendbuf: np.ndarray,
    recvbuf: np.ndarray | None = None,
    op: Operator | MPI.Op | Callable = SUM,
    algorithm: str = AUTO,
    *,
    commutative: bool | None = None,
    reproducible: bool = False,
    check: bool | None = None,
    codec: str = NONE,
    nan: str = "raise",
    error_feedback: ErrorFeedback | Residual | None = None,
    digest: bool | None = None,
) -> np.ndarray:
    """Combine the arrays of all ranks elementwise, and give the result to all; collective, blocking.

    Parameters
    ----------
    comm : Intracomm
        The first call on a communicator duplicates it; the duplicate is freed together with it.
    sendbuf : array
        This rank's contribution: C-contiguous, of any shape, of any NumPy number type, bfloat16, or for MINLOC and
        MAXLOC pairs (:func:`mpi_allreduce.pair_dtype`).  ``IN_PLACE`` if the contribution is in ``recvbuf``.  Host
        arrays are NumPy's, or any that DLPack gives to NumPy without a copy (PyTorch's on the CPU); arrays on a CUDA
        device are CuPy's, or any with ``__cuda_array_interface__`` (PyTorch's).
    recvbuf : array, optional
        Where the result goes; memory, shape and dtype of ``sendbuf``, not overlapping it.  A new array, NumPy's or
        CuPy's, if left out.
    op : Operator, MPI.Op or callable
        SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR, BXOR, MINLOC, MAXLOC, AVG (the mean), MPI's predefined ones,
        or a function of two arrays, see :meth:`Operator.from_function`.
    algorithm : str
        A name listed by :func:`mpi_allreduce.algorithm_names`; its cost is in :mod:`mpi_allreduce.algorithms`.  Or
        ``auto``, the default: what the decision table of this machine says (see ``mpi_allreduce tune``), else a
        built-in rule; with a codec ``pairwise``.  :func:`explain` tells which and why.
    commutative : bool, optional
        Of a function given as ``op``: whether it may be applied to ranks in any order.  Taken as False if left out.
    reproducible : bool
        Give the same bits whatever the algorithm, the number of ranks and their order: SUM and AVG of float32 and
        float64, at 2.5 times the bytes.  The same as ``algorithm="reproducible:..."``; see
        :func:`mpi_allreduce.runtime.reproducible.bind_reproducible` for method and cost.
    check : bool, optional
        Compare the calls of all ranks first, and raise everywhere instead of hanging if they do not fit together.
        By default only if the environment variable MPI_ALLREDUCE_CHECK is 1.  Costs a small allgather.
    codec : str
        What blocks look like on the wire: ``none``, ``fp16``, ``int8:block=256``, ``topk:0.01``, ..., see
        :mod:`mpi_allreduce.codecs`; for SUM and AVG of float32, float64, float16 and bfloat16.  Any schedule can use
        it; ``hierarchical`` uses it between nodes only, and ``shared`` not at all.
    nan : str
        What happens, with a codec, where a contribution is infinite or NaN, or overflows in the codec: ``raise``
        NonFiniteError, let it ``pass`` (a group with one scale becomes NaN as a whole), or ``skip``: the result is
        zero.  All ranks do the same.
    error_feedback : ErrorFeedback or Residual, optional
        Remembers what the codec drops, and adds it to the next contribution.
    digest : bool, optional
        Compare the results of all ranks behind each run, and raise everywhere if they are not the same bits.  By
        default only if the environment variable MPI_ALLREDUCE_DIGEST is 1.  Costs an allreduce of 16 bytes.

    Returns
    -------
    ndarray
        ``recvbuf``, or the new array.  All ranks hold the same bits.

    Raises
    ------
    TypeError, ValueError
        For bad arguments, before anything is sent.
    DisagreementError
        With ``check``, on every rank, if ranks differ.
    NonFiniteError
        See ``nan``.
    DivergedError
        With ``digest``, on every rank.

    See Also
    --------
    plan : the same prepared once, for buffers that are reduced again and again.

    Notes
    -----
    On a device the call comes behind what the caller's current stream holds (CuPy's; PyTorch's default stream is the
    same), and what is put into the current stream later comes behind it: nothing has to be synchronised.  The host
    returns when all messages are over; the last additions may still be under way on the device.

    The plan behind a call is kept and found again by the addresses of the buffers: up to 64 per communicator, with up
    to 16 MiB of scratch memory among them.  The buffers themselves are not kept alive; what a function given as ``op``
    refers to is.
    """
    plain = codec == NONE and digest is None and error_feedback is None
    simple = commutative is None and not reproducible and not check and plain
    if simple and recvbuf is not None and (known := recall(comm, sendbuf, recvbuf, op, algorithm)):
        known()
        return recvbuf
    if isinstance(error_feedback, ErrorFeedback):
        error_feedback = error_feedback.bucket()  # where it is now: other buckets may have been made meanwhile
    extra = (commutative, codec, nan, error_feedback, digest)
    return _allreduce(comm, sendbuf, recvbuf, op, algorithm, extra, reproducible, check, simple)


def _allreduce(comm, sendbuf, recvbuf, op, algorithm, extra: tuple, reproducible, check, simple: bool) -> np.ndarray:
    """The call, where these very objects are not known yet."""
    given = recvbuf
    sendbuf, recvbuf = _plain(sendbuf), _plain(recvbuf)
    if reproducible:
        algorithm = f"reproducible:{algorithm}"
    if recvbuf is None:
        recvbuf = _new_like(sendbuf)

    def checked() -> Call:
        commutative, codec, nan, feedback, digest = extra
        return check_call(
            comm, sendbuf, recvbuf, op, algorithm, commutative,
            codec=codec, nan=nan, error_feedback=feedback, digest=digest,
        )  # fmt: skip

    compared = wanted(check)
    if compared:
        check_comm(comm)
        agree(private(comm).comm, checked)
    key = _key(sendbuf, recvbuf, op, algorithm, extra)
    kept = find_plan(comm, key)
    if kept is None:
        call = checked()  # before anything that is collective
        state = private(comm)
        call = resolved(call, state)
        kept = Plan(_borrowed(call), state, state.shared_tags(_channels(call, state)), state.keys)
        if kept.reusable:
            state.remember(key, kept)
    if simple and not compared and kept.reusable and given is recvbuf and isinstance(recvbuf, np.ndarray):
        remember(comm, sendbuf, recvbuf, op, algorithm, kept)
    try:
        kept()
    except BaseException:
        if kept.running:  # it holds the buffers only as long as this call lasts, but messages are still to come
            _unfinished.append((kept, sendbuf, recvbuf))
            private(comm).plans.pop(key, None)
        raise
    return recvbuf if given is None else given


_unfinished: list[tuple] = []  # calls that were broken off, with their buffers


def _plain(array: object) -> object:
    """NumPy's view of a host array of whatever library; anything else as it is, to be checked later."""
    try:
        plain = arrays.on_host(array)
    except TypeError:
        return array
    return array if plain is None else plain


def _new_like(sendbuf: object):
    """A new array for the result; None if there can be none, as the check of arguments will tell."""
    if isinstance(sendbuf, np.ndarray):
        return np.empty_like(sendbuf, subok=False)
    if not arrays.is_cuda(sendbuf):
        return None
    try:
        device = arrays.cuda_device(sendbuf)
        array = device.array(sendbuf)
    except (ImportError, RuntimeError, TypeError):
        return None
    return device.empty(array.size, array.dtype).reshape(array.shape)


def _key(sendbuf, recvbuf, op, algorithm, extra: tuple) -> tuple | None:
    """Equal for calls that the same plan can serve: what was checked once for a key need not be checked again."""
    operator = op.handle if isinstance(op, MPI.Op) else op
    options = tuple(option.identity if isinstance(option, Residual) else option for option in extra)
    try:
        key = (_identity(sendbuf), _identity(recvbuf), operator, algorithm, options)
        hash(key)
    except (TypeError, RuntimeError):  # no hash; or a tensor that will not say where it is
        return None
    return key


def _identity(array: object) -> tuple:
    if not isinstance(array, np.ndarray):
        interface = getattr(array, "__cuda_array_interface__", None)
        if interface is None:
            return (id(array),)
        return (*interface["data"], interface["shape"], interface.get("strides"), interface["typestr"])
    return (*array.__array_interface__["data"], array.shape, array.strides, array.dtype)


def _borrowed(call: Call) -> Call:
    borrow = borrowed if call.device is None else call.device.borrowed
    send = None if call.sendbuf is None else borrow(call.sendbuf)
    receive = borrow(call.recvbuf)
    return replace(call, sendbuf=send, recvbuf=receive, result=receive)


def plan(
    comm: MPI.Intracomm,
    sendbuf: np.ndarray,
    recvbuf: np.ndarray | None = None,
    op: Operator | MPI.Op | Callable = SUM,
    algorithm: str = AUTO,
    *,
    commutative: bool | None = None,
    reproducible: bool = False,
    check: bool | None = None,
    codec: str = NONE,
    nan: str = "raise",
    error_feedback: ErrorFeedback | Residual | None = None,
    digest: bool | None = None,
    segment_bytes: int = SEGMENT_BYTES,
    channels: int | None = None,
) -> Plan:
    """Prepare an allreduce that will be run many times on the same buffers; collective.

    Parameters
    ----------
    comm, sendbuf, recvbuf, op, algorithm, commutative, reproducible, check, codec, nan, error_feedback, digest
        As for :func:`allreduce`.
    segment_bytes : int
        Messages are cut into parts of at most this many bytes; the same on all ranks.
    channels : int, optional
        The buffer is cut into so many slices, which run the schedule independently: while one reduces, or waits for a
        handshake, another communicates.  By default 2 for large buffers between nodes, else 1.

    Returns
    -------
    Plan
        Call it to run it: ``plan()`` returns ``recvbuf``.

    Raises
    ------
    TypeError, ValueError, DisagreementError
        As for :func:`allreduce`.
    """
    if reproducible:
        algorithm = f"reproducible:{algorithm}"

    def checked() -> Call:
        return check_call(
            comm, sendbuf, recvbuf, op, algorithm, commutative, segment_bytes, channels, codec, nan, error_feedback,
            digest,
        )  # fmt: skip

    if wanted(check):
        check_comm(comm)
        call = agree(private(comm).comm, checked)
    else:
        call = checked()
    state = private(comm)
    call = resolved(call, state)
    return Plan(call, state, state.next_tags(_channels(call, state)), Keys())


def explain(
    comm: MPI.Intracomm,
    sendbuf: np.ndarray,
    recvbuf: np.ndarray | None = None,
    op: Operator | MPI.Op | Callable = SUM,
    *,
    commutative: bool | None = None,
) -> Choice:
    """What ``algorithm="auto"`` means for a call, and why; collective for the first such call on a communicator.

    Parameters
    ----------
    comm, sendbuf, recvbuf, op, commutative
        As for :func:`allreduce`.

    Returns
    -------
    Choice
        With ``algorithm`` and ``reason``; ``print`` shows both.  A plan made with ``auto`` has it as ``plan.choice``.

    Raises
    ------
    TypeError, ValueError
        As for :func:`allreduce`; or if the decision table is none.
    """
    call = check_call(comm, sendbuf, recvbuf, op, AUTO, commutative)
    return choose(call, private(comm))


def iallreduce(
    comm: MPI.Intracomm,
    sendbuf: np.ndarray,
    recvbuf: np.ndarray | None = None,
    op: Operator | MPI.Op | Callable = SUM,
    algorithm: str = AUTO,
    *,
    commutative: bool | None = None,
    reproducible: bool = False,
    check: bool | None = None,
    codec: str = NONE,
    nan: str = "raise",
    error_feedback: ErrorFeedback | Residual | None = None,
    digest: bool | None = None,
) -> Plan:
    """Begin an allreduce, and return at once; collective, nonblocking.

    Calls come in the same order on all ranks of a communicator, as MPI wants it of MPI_Iallreduce; any number may be in
    flight, and they may be tested and waited for in any order.  The result has the same bits as :func:`allreduce`'s.

    Parameters
    ----------
    comm, sendbuf, recvbuf, op, algorithm, commutative, reproducible, check, codec, nan, error_feedback, digest
        As for :func:`allreduce`.  The arrays must not be touched until the run is complete.

    Returns
    -------
    Plan
        Started: ``test()`` it between pieces of work, ``wait()`` returns ``recvbuf``.

    Raises
    ------
    TypeError, ValueError, DisagreementError
        As for :func:`allreduce`.

    See Also
    --------
    plan : made once and started again and again, which saves making it.
    """
    made = plan(
        comm, sendbuf, recvbuf, op, algorithm, commutative=commutative, reproducible=reproducible, check=check,
        codec=codec, nan=nan, error_feedback=error_feedback, digest=digest,
    )  # fmt: skip
    made.next_run = next(private(comm).keys)  # each call draws anew, as runs of one plan do
    return made.start()


def _channels(call: Call, state: Private) -> int:
    """How many slices; the same on all ranks."""
    if is_vendor(call.algorithm) or (call.recvbuf.nbytes <= CHANNEL_BYTES and call.channels is None):
        return 1
    if call.channels is None and call.device is not None and not state.cuda_aware(call.device).aware:
        return 4 if call.recvbuf.nbytes > STAGED_BYTES else 1
    return call.channels or (2 if state.spans_nodes else 1)
