"""The two calls that users make: ``allreduce`` and ``plan``."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from mpi4py import MPI

from ..memory import SUM, Operator, borrowed
from .agreement import agree, wanted
from .arguments import SEGMENT_BYTES, Call, check_call, check_comm
from .communicator import SHARED_TAG, find_plan, private
from .plans import Plan

__all__ = ["allreduce", "plan"]


def allreduce(
    comm: MPI.Intracomm,
    sendbuf: np.ndarray,
    recvbuf: np.ndarray | None = None,
    op: Operator | MPI.Op | Callable = SUM,
    algorithm: str = "ring",
    *,
    commutative: bool | None = None,
    check: bool | None = None,
) -> np.ndarray:
    """Combine the arrays of all ranks elementwise, and give the result to all; collective, blocking.

    Parameters
    ----------
    comm : Intracomm
        The first call on a communicator duplicates it; the duplicate is freed together with it.
    sendbuf : ndarray
        This rank's contribution: C-contiguous, of any shape, of any NumPy number type, bfloat16, or for MINLOC and
        MAXLOC pairs (:func:`mpi_allreduce.pair_dtype`).  ``IN_PLACE`` if the contribution is in ``recvbuf``.
    recvbuf : ndarray, optional
        Where the result goes; shape and dtype of ``sendbuf``, not overlapping it.  A new array if left out.
    op : Operator, MPI.Op or callable
        SUM, PROD, MIN, MAX, LAND, LOR, LXOR, BAND, BOR, BXOR, MINLOC, MAXLOC, AVG (the mean), MPI's predefined ones,
        or a function of two arrays, see :meth:`Operator.from_function`.
    algorithm : str
        A name listed by :func:`mpi_allreduce.algorithm_names`; its cost is in :mod:`mpi_allreduce.algorithms`.
    commutative : bool, optional
        Of a function given as ``op``: whether it may be applied to ranks in any order.  Taken as False if left out.
    check : bool, optional
        Compare the calls of all ranks first, and raise everywhere instead of hanging if they do not fit together.
        By default only if the environment variable MPI_ALLREDUCE_CHECK is 1.  Costs a small allgather.

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

    See Also
    --------
    plan : the same prepared once, for buffers that are reduced again and again.

    Notes
    -----
    The plan behind a call is kept and found again by the addresses of the buffers: up to 64 per communicator, with up
    to 16 MiB of scratch memory among them.  The buffers themselves are not kept alive; what a function given as ``op``
    refers to is.
    """
    if recvbuf is None and isinstance(sendbuf, np.ndarray):
        recvbuf = np.empty_like(sendbuf, subok=False)

    def checked() -> Call:
        return check_call(comm, sendbuf, recvbuf, op, algorithm, commutative)

    if wanted(check):
        check_comm(comm)
        agree(private(comm).comm, checked)
    key = _key(sendbuf, recvbuf, op, algorithm, commutative)
    kept = find_plan(comm, key)
    if kept is None:
        call = checked()
        state = private(comm)
        kept = Plan(_borrowed(call), state.comm, SHARED_TAG)
        if kept.reusable:
            state.remember(key, kept)
    kept()
    return recvbuf


def _key(sendbuf, recvbuf, op, algorithm, commutative) -> tuple | None:
    """Equal for calls that the same plan can serve: what was checked once for a key need not be checked again."""
    operator = op.handle if isinstance(op, MPI.Op) else op
    key = (_identity(sendbuf), _identity(recvbuf), operator, algorithm, commutative)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _identity(array: object) -> tuple:
    if not isinstance(array, np.ndarray):
        return (id(array),)
    return (*array.__array_interface__["data"], array.shape, array.strides, array.dtype)


def _borrowed(call: Call) -> Call:
    send = None if call.sendbuf is None else borrowed(call.sendbuf)
    return replace(call, sendbuf=send, recvbuf=borrowed(call.recvbuf))


def plan(
    comm: MPI.Intracomm,
    sendbuf: np.ndarray,
    recvbuf: np.ndarray | None = None,
    op: Operator | MPI.Op | Callable = SUM,
    algorithm: str = "ring",
    *,
    commutative: bool | None = None,
    check: bool | None = None,
    segment_bytes: int = SEGMENT_BYTES,
) -> Plan:
    """Prepare an allreduce that will be run many times on the same buffers; collective.

    Parameters
    ----------
    comm, sendbuf, recvbuf, op, algorithm, commutative, check
        As for :func:`allreduce`.
    segment_bytes : int
        Messages are cut into parts of at most this many bytes; the same on all ranks.

    Returns
    -------
    Plan
        Call it to run it: ``plan()`` returns ``recvbuf``.

    Raises
    ------
    TypeError, ValueError, DisagreementError
        As for :func:`allreduce`.
    """

    def checked() -> Call:
        return check_call(comm, sendbuf, recvbuf, op, algorithm, commutative, segment_bytes)

    if wanted(check):
        check_comm(comm)
        call = agree(private(comm).comm, checked)
    else:
        call = checked()
    state = private(comm)
    return Plan(call, state.comm, state.next_tag())
