"""The MPI library's own MPI_Allreduce behind the interface of a plan."""

from functools import partial

import numpy as np
from mpi4py import MPI

from ..memory import OPERATORS, Kind, Operator, Space, kind_of
from .execution import Execution, Task, UnsupportedError
from .progress import Progress

__all__ = ["VENDORS", "bind_vendor", "is_native"]

_PAIRS = {
    np.dtype(np.float32): MPI.FLOAT_INT,
    np.dtype(np.float64): MPI.DOUBLE_INT,
    np.dtype(np.longdouble): MPI.LONG_DOUBLE_INT,
    np.dtype(np.int64): MPI.LONG_INT,
    np.dtype(np.int32): MPI.TWOINT,
    np.dtype(np.int16): MPI.SHORT_INT,
}


class _Vendor(Execution):
    """One call of the MPI library.

    Parameters
    ----------
    buffers : tuple
        Send buffer, receive buffer and operator, as mpi4py takes them.
    resources : list
        Datatype and operator, where they had to be made.
    """

    patient = True  # or not: the library's own affair
    exclusive = True  # MPI_Allreduce does not match MPI_Iallreduce

    def __init__(self, comm: MPI.Intracomm, buffers: tuple, resources: list, space: Space):
        self.steps = [partial(comm.Allreduce, *buffers)]
        self.start = partial(comm.Iallreduce, *buffers)
        self.space = space
        if not space.on_host:
            self.steps[:0] = [space.enter, space.settle]
        self.resources = resources
        self.native_op = self.reusable = not resources

    def progress(self) -> Progress:
        """MPI_Iallreduce, tested.

        Raises
        ------
        UnsupportedError
            With Open MPI on a device's buffers, before anything is sent.
        """
        if not self.space.on_host:
            if "Open MPI" in MPI.Get_library_version():
                raise UnsupportedError(
                    "vendor: Open MPI's MPI_Iallreduce crashes on buffers of a device; run the plan blocking, or "
                    "choose one of our own algorithms"
                )
            self.space.enter()
            self.space.settle()
        request = self.start()
        while not request.Test():
            yield 0

    def where(self) -> str:
        return "inside the MPI library's allreduce"


class _VendorPersistent(_Vendor):
    """MPI_Allreduce_init, started again and again."""

    def __init__(self, comm: MPI.Intracomm, buffers: tuple, resources: list, space: Space):
        super().__init__(comm, buffers, resources, space)
        try:
            request = comm.Allreduce_init(*buffers)
        except NotImplementedError as error:  # what mpi4py raises where the library has no such function
            version = ".".join(map(str, MPI.Get_version()))
            raise UnsupportedError(
                f"persistent collectives need MPI 4; this library implements MPI {version}"
            ) from error
        self.steps = [request.Start, request.Wait]
        self.start = partial(_started, request)
        self.resources = [request, *resources]
        self.reusable = False


def _started(request: MPI.Prequest) -> MPI.Prequest:
    request.Start()
    return request


VENDORS = {"vendor": _Vendor, "vendor_persistent": _VendorPersistent}


def bind_vendor(task: Task) -> Execution:
    """Bind MPI_Allreduce, blocking or persistent.

    MPI's own operator and datatype are used where there are such.  Otherwise (float16, bfloat16, functions of the
    user's) the operator is made by MPI_Op_create from our kernel, on elements of opaque bytes.
    """
    send, receive, space = task.send, task.receive, task.space()
    port = space.ports([])()
    datatype, operator, made = _native(receive.dtype, task.op) or _created(receive.dtype, task.op)
    recvbuf = [port.outgoing(receive).buffer, receive.size, datatype]
    sendbuf = MPI.IN_PLACE if send is None else [port.outgoing(send).buffer, send.size, datatype]
    return VENDORS[task.name](task.comm, (sendbuf, recvbuf, operator), made, space)


def is_native(dtype: np.dtype, op: Operator) -> bool:
    """Whether the library has an operator of its own for this."""
    return _native(dtype, op) is not None


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
