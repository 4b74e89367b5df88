"""The MPI library's own MPI_Allreduce behind the interface of a plan."""

from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI

from ..memory import OPERATORS, Kind, Operator, kind_of, wire

__all__ = ["VENDORS", "UnsupportedError", "bind_vendor"]

Steps = tuple[list[Callable[[], object]], list]
"""What one run calls in turn, and the MPI objects to be freed behind it."""

_PAIRS = {
    np.dtype(np.float32): MPI.FLOAT_INT,
    np.dtype(np.float64): MPI.DOUBLE_INT,
    np.dtype(np.longdouble): MPI.LONG_DOUBLE_INT,
    np.dtype(np.int64): MPI.LONG_INT,
    np.dtype(np.int32): MPI.TWOINT,
    np.dtype(np.int16): MPI.SHORT_INT,
}


class UnsupportedError(RuntimeError):
    """The MPI library lacks what was asked of it."""


def _blocking(comm: MPI.Intracomm, sendbuf, recvbuf, op: MPI.Op) -> Steps:
    return [partial(comm.Allreduce, sendbuf, recvbuf, op)], []


def _persistent(comm: MPI.Intracomm, sendbuf, recvbuf, op: MPI.Op) -> Steps:
    try:
        request = comm.Allreduce_init(sendbuf, recvbuf, op)
    except NotImplementedError as error:  # what mpi4py raises where the library has no such function
        version = ".".join(map(str, MPI.Get_version()))
        raise UnsupportedError(f"persistent collectives need MPI 4; this library implements MPI {version}") from error
    return [request.Start, request.Wait], [request]


VENDORS = {"vendor": _blocking, "vendor_persistent": _persistent}


def bind_vendor(
    name: str, comm: MPI.Intracomm, send: np.ndarray | None, receive: np.ndarray, op: Operator
) -> tuple[Steps, bool]:
    """Steps that call MPI_Allreduce on one-dimensional arrays, and whether the operator is one of MPI's own.

    MPI's own operator and datatype are used where there are such.  Otherwise (float16, bfloat16, functions of the
    user's) the operator is made by MPI_Op_create from our kernel, on elements of opaque bytes.
    """
    native = _native(receive.dtype, op)
    datatype, operator, made = native or _created(receive.dtype, op)
    recvbuf = [wire(receive), receive.size, datatype]
    sendbuf = MPI.IN_PLACE if send is None else [wire(send), send.size, datatype]
    steps, resources = VENDORS[name](comm, sendbuf, recvbuf, operator)
    return (steps, resources + made), native is not None


def _native(dtype: np.dtype, op: Operator):
    if OPERATORS.get(op.name) is not op:  # a user's function may have any name
        return None
    operator = getattr(MPI, "SUM" if op.mean else op.name)
    datatype = _predefined(dtype)
    if datatype is None or not _works(datatype, operator):
        return None
    return datatype, operator, []


def _predefined(dtype: np.dtype) -> MPI.Datatype | None:
    if kind_of(dtype) is Kind.PAIR:
        value, index = (dtype[name] for name in dtype.names)
        datatype = _PAIRS.get(value) if index == np.int32 else None
        extent = datatype.Get_extent()[1] if datatype else None
        offset = dtype.fields[dtype.names[1]][1]
        aligned = extent == dtype.itemsize and offset == max(value.itemsize, 4)
        return datatype if datatype and aligned else None
    try:
        datatype = MPI.Datatype.fromcode(dtype.char)
    except ValueError:
        return None
    return datatype if datatype != MPI.DATATYPE_NULL else None


def _works(datatype: MPI.Datatype, operator: MPI.Op) -> bool:
    """Whether the library combines the two; asked with one element and one rank."""
    size = datatype.Get_extent()[1]
    send, receive = np.zeros((2, size), np.uint8)
    try:
        MPI.COMM_SELF.Allreduce([send, 1, datatype], [receive, 1, datatype], operator)
    except MPI.Exception:
        return False
    return True


def _created(dtype: np.dtype, op: Operator):
    datatype = MPI.BYTE.Create_contiguous(dtype.itemsize).Commit()
    kernels = {}

    def function(left, inout, _datatype):
        left = np.frombuffer(left, dtype)
        inout = np.frombuffer(inout, dtype)
        if left.size not in kernels:
            kernels[left.size] = op.kernel(dtype, left.size)
        kernels[left.size](left, inout, out=inout)

    operator = MPI.Op.Create(function, op.commutative)
    return datatype, operator, [operator, datatype]
