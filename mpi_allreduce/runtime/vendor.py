"""The MPI library's own MPI_Allreduce behind the interface of a plan, and what it makes of other collectives."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from mpi4py import MPI

from ..algorithms import block_offset
from ..memory import OPERATORS, Kind, Operator, Space, kind_of
from .execution import Execution, Step, Task, UnsupportedError
from .progress import Progress
from .turns import InTurn, Lane

__all__ = ["VENDORS", "bind_vendor", "is_native", "takes_device"]

_PAIRS = {
    np.dtype(np.float32): MPI.FLOAT_INT,
    np.dtype(np.float64): MPI.DOUBLE_INT,
    np.dtype(np.longdouble): MPI.LONG_DOUBLE_INT,
    np.dtype(np.int64): MPI.LONG_INT,
    np.dtype(np.int32): MPI.TWOINT,
    np.dtype(np.int16): MPI.SHORT_INT,
}


@dataclass(frozen=True)
class _Given:
    """What the library's functions are given.

    Attributes
    ----------
    task : Task
    space : Space
    datatype : Datatype
    operator : Op
    made : list
        Datatype and operator, where they had to be made.
    """

    task: Task
    space: Space
    datatype: MPI.Datatype
    operator: MPI.Op
    made: list

    @property
    def send(self):
        """The contribution, as mpi4py takes it."""
        return MPI.IN_PLACE if self.task.send is None else self.message(self.task.send)

    @property
    def receive(self) -> list:
        """The result, as mpi4py takes it."""
        return self.message(self.task.receive)

    def message(self, array, counts: int | list[int] | None = None) -> list:
        """An array as mpi4py takes it, whole or with the number of elements for each rank."""
        port = self.space.ports([])()
        return [port.outgoing(array).buffer, array.size if counts is None else counts, self.datatype]


class _Vendor(InTurn):
    """One call of the MPI library."""

    patient = True  # or not: the library's own affair
    exclusive = True  # MPI_Allreduce does not match MPI_Iallreduce
    takes_device = True

    def __init__(self, given: _Given):
        self.space = given.space
        self.resources = list(given.made)
        self.native_op = self.reusable = not given.made
        self.turns = self._turns(given.task)
        self.steps = self._calls(given)
        if not self.space.on_host:
            self.steps[:0] = [self.space.enter, self.space.settle]

    def _turns(self, task: Task) -> Lane | None:
        """Where runs in flight take turns, if they do."""
        return task.private.lane if task.staged else None

    def _comm(self, task: Task) -> MPI.Intracomm:
        """Of runs in flight."""
        return self.turns.comm if self.turns else task.comm

    def _calls(self, given: _Given) -> list[Step]:
        """The calls that block; sets besides what :meth:`run` starts."""
        buffers = given.send, given.receive, given.operator
        self.start = partial(self._comm(given.task).Iallreduce, *buffers)
        return [partial(given.task.comm.Allreduce, *buffers)]

    def run(self) -> Progress:
        """The library's nonblocking function, tested.

        Raises
        ------
        UnsupportedError
            With Open MPI on a device's buffers, before anything is sent.
        """
        if not self.space.on_host:
            if "Open MPI" in MPI.Get_library_version():
                raise UnsupportedError(
                    "vendor: Open MPI's MPI_Iallreduce crashes on buffers of a device, and so do its other nonblocking "
                    "reductions; run the plan blocking, or choose one of our own algorithms"
                )
            self.space.enter()
            self.space.settle()
        yield from self._in_flight()

    def _in_flight(self) -> Progress:
        """What was prepared, started and tested."""
        return _tested(self.start)

    def where(self) -> str:
        return "inside the MPI library's allreduce"


class _VendorPersistent(_Vendor):
    """MPI_Allreduce_init, started again and again."""

    takes_device = False

    def _calls(self, given: _Given) -> list[Step]:
        try:
            request = self._comm(given.task).Allreduce_init(given.send, given.receive, given.operator)
        except NotImplementedError as error:  # what mpi4py raises where the library has no such function
            version = ".".join(map(str, MPI.Get_version()))
            raise UnsupportedError(
                f"persistent collectives need MPI 4; this library implements MPI {version}"
            ) from error
        self.start = partial(_started, request)
        self.resources[:0] = [request]
        self.reusable = False
        return [request.Start, request.Wait]


class _InTwo(_Vendor):
    """Two of the library's collectives, one after the other.

    Runs in flight have a communicator to themselves and take turns there: the second call of one run must not come
    before the first of another on some ranks, and behind it on others.
    """

    def _turns(self, task: Task) -> Lane:
        return task.private.lane

    def _calls(self, given: _Given) -> list[Step]:
        self.starts = self._pair(given, self._comm(given.task), "I")
        return list(self._pair(given, given.task.comm, ""))

    def _pair(self, given: _Given, comm: MPI.Intracomm, prefix: str) -> tuple[Step, Step]:
        """Both calls; prefix ``I`` makes them nonblocking."""
        raise NotImplementedError

    def _in_flight(self) -> Progress:
        """One after the other."""
        for start in self.starts:
            yield from _tested(start)


class _ReduceBcast(_InTwo):
    """MPI_Reduce to rank 0, MPI_Bcast."""

    def _pair(self, given, comm, prefix):
        send, receive = given.send, given.receive
        if comm.rank:
            send, receive = receive if send is MPI.IN_PLACE else send, None
        return (
            partial(_method(comm, prefix, "Reduce"), send, receive, given.operator, 0),
            partial(_method(comm, prefix, "Bcast"), given.receive, 0),
        )


class _ReduceScatterAllgather(_InTwo):
    """MPI_Reduce_scatter_block and MPI_Allgather; MPI_Reduce_scatter and MPI_Allgatherv where blocks are not equal.

    The rank's block comes into scratch memory: in place, MPI_Reduce_scatter leaves it where MPI_Allgather must not find
    it.
    """

    def _calls(self, given: _Given) -> list[Step]:
        comm, receive = given.task.comm, given.task.receive
        size, count = comm.size, receive.size
        if count % size and not self.space.on_host and "Open MPI" in MPI.Get_library_version():
            raise UnsupportedError(
                "vendor_reduce_scatter_allgather: Open MPI's MPI_Reduce_scatter does not take buffers of a device; use "
                f"a number of elements that is divisible by {size}, or vendor"
            )
        bounds = [block_offset(rank, size, count) for rank in range(size + 1)]
        self._counts = [stop - start for start, stop in pairwise(bounds)] if count % size else None
        first, stop = bounds[comm.rank : comm.rank + 2]
        scratch = self.space.scratch(stop - first, receive.dtype)
        self._block = given.message(scratch.array)
        self.scratch_bytes = scratch.array.nbytes
        self.resources.append(scratch)
        return super()._calls(given)

    def _pair(self, given, comm, prefix):
        block, counts = self._block, self._counts
        sizes = block[1] if counts is None else counts  # mpi4py wants what each rank gets
        receive = given.message(given.task.receive, sizes)
        if counts is None:
            source = given.message(given.task.source, sizes)
            scatter = partial(_method(comm, prefix, "Reduce_scatter_block"), source, block, given.operator)
            return scatter, partial(_method(comm, prefix, "Allgather"), block, receive)
        source = given.message(given.task.source)
        scatter = partial(_method(comm, prefix, "Reduce_scatter"), source, block, counts, given.operator)
        return scatter, partial(_method(comm, prefix, "Allgatherv"), block, receive)


def _method(comm: MPI.Intracomm, prefix: str, name: str):
    return getattr(comm, prefix + name.lower() if prefix else name)


def _started(request: MPI.Prequest) -> MPI.Prequest:
    request.Start()
    return request


def _tested(start: Step) -> Progress:
    """Begin, and test until it is complete."""
    request = start()
    while not request.Test():
        yield 0


VENDORS = {
    "vendor": _Vendor,
    "vendor_persistent": _VendorPersistent,
    "vendor_reduce_bcast": _ReduceBcast,
    "vendor_reduce_scatter_allgather": _ReduceScatterAllgather,
}


def bind_vendor(task: Task) -> Execution:
    """Bind MPI_Allreduce, blocking or persistent, or two other collectives with the same result.

    MPI's own operator and datatype are used where there are such.  Otherwise (float16, bfloat16, functions of the
    user's) the operator is made by MPI_Op_create from our kernel, on elements of opaque bytes.

    Raises
    ------
    UnsupportedError
        On all ranks: what the library lacks.
    """
    native = _native(task.receive.dtype, task.op) or _created(task.receive.dtype, task.op)
    return VENDORS[task.name](_Given(task, task.space(), *native))


def takes_device(name: str) -> bool:
    """Whether this is given a device's memory where the library takes it."""
    return name in VENDORS and VENDORS[name].takes_device


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
