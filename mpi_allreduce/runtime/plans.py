"""Plans: a schedule bound to a communicator and to buffers, ready to be run many times."""

import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
from mpi4py import MPI

from ..algorithms import get
from ..memory import allocate, elements, wire
from ..memory.operators import Kernel, divide
from .arguments import Call
from .program import Buffer, Copy, Message, Program, Reduce, Span, Transfer, lower
from .vendor import VENDORS, bind_vendor

__all__ = ["PACK_BYTES", "Plan"]

PACK_BYTES = 16 << 10  # up to here copying costs less than another message

Step = Callable[[], object]


class Plan:
    """An allreduce on fixed buffers; call it to run it.

    Everything is prepared when the plan is made; running it allocates nothing.  Plans are made by
    :func:`mpi_allreduce.plan`, in the same order on all ranks.  Several plans on one communicator may be run in any
    order that is the same on all ranks.  A plan holds its buffers; fill ``sendbuf`` anew and run the plan again.

    Attributes
    ----------
    sendbuf : ndarray or None
        The contribution; None in place.
    recvbuf : ndarray
        The result.
    algorithm : str
    op : Operator
    sent_bytes : int or None
        What this rank sends in one run; None if unknown (the vendor's).
    scratch_bytes : int
        Memory that the plan holds beyond the two buffers.
    native_op : bool
        False if the vendor's MPI_Allreduce has to call back our kernel, as no operator of its own fits.
    reusable : bool
        False if the plan holds MPI handles that are few or were made collectively, so that it must not be kept.
    """

    def __init__(self, call: Call, comm: MPI.Intracomm, tag: int):
        self.sendbuf = call.sendbuf
        self.recvbuf = call.recvbuf
        self.algorithm = call.algorithm
        self.op = call.op
        self.sent_bytes: int | None = None
        self.scratch_bytes = 0
        self.native_op = self.reusable = True
        send = None
        if call.sendbuf is not None:
            send = elements(call.sendbuf).view()
            send.flags.writeable = False  # so that no function of the user's can change the contribution
        receive = elements(call.recvbuf)
        if call.algorithm in VENDORS:
            (steps, resources), self.native_op = bind_vendor(call.algorithm, comm, send, receive, call.op)
            self.reusable = not resources
        else:
            steps, resources = self._bind_schedule(comm, tag, send, receive, call.segment_bytes)
        if call.op.mean:
            steps.append(partial(divide, receive, comm.size))
        self._steps = tuple(steps)
        self._release = weakref.finalize(self, _free_all, resources)

    def __call__(self) -> np.ndarray:
        """Run the plan; collective, blocking.

        Returns
        -------
        ndarray
            ``recvbuf``, now the reduction of all contributions; the same bits on all ranks.
        """
        for step in self._steps:
            step()
        return self.recvbuf

    def free(self) -> None:
        """Give up the buffers and what the MPI library holds for the plan; it cannot be run any more."""
        self._steps = (_refuse_freed,)
        self.sendbuf = self.recvbuf = None
        self._release()

    def __enter__(self) -> "Plan":
        return self

    def __exit__(self, *_) -> None:
        self.free()

    def _bind_schedule(self, comm, tag, send, receive, segment_bytes) -> tuple[list[Step], list]:
        itemsize = receive.dtype.itemsize
        program = _program(
            self.algorithm,
            comm.rank,
            comm.size,
            receive.size,
            send is None,
            max(1, segment_bytes // itemsize),
            PACK_BYTES // itemsize,
        )
        scratch = allocate(program.scratch, receive.dtype)
        self.sent_bytes = program.sent * itemsize
        self.scratch_bytes = scratch.nbytes
        binder = _Binder(comm, tag, send, receive, scratch, self.op.kernel(receive.dtype, program.longest_reduction))
        return [binder.bind(step) for step in program.steps], binder.requests


@lru_cache(maxsize=256)
def _program(name: str, rank: int, size: int, count: int, in_place: bool, segment: int, pack: int) -> Program:
    algorithm = get(name)
    rounds = algorithm.schedule(rank, size)
    return lower(rounds, algorithm.blocks(size), count, in_place=in_place, segment=segment, pack=pack)


class _Binder:
    """Turns steps on spans into calls on views.

    Every step becomes one callable without arguments, mostly a C function with its arguments bound, so that a run is
    a loop over calls and nothing else.
    """

    def __init__(self, comm: MPI.Intracomm, tag: int, send, receive, scratch, kernel: Kernel):
        self.comm = comm
        self.tag = tag
        self.memory = {Buffer.SEND: send, Buffer.RECEIVE: receive, Buffer.SCRATCH: scratch}
        self.kernel = kernel
        self.requests: list[MPI.Prequest] = []

    def bind(self, step: Transfer | Reduce | Copy) -> Step:
        match step:
            case Reduce(left, right, out):
                return partial(self.kernel, self.view(left), self.view(right), out=self.view(out))
            case Copy(source, target):
                return partial(np.copyto, self.view(target), self.view(source))
            case Transfer(sends, receives):
                return self.transfer(sends, receives)

    def view(self, span: Span) -> np.ndarray:
        return self.memory[span.buffer][span.start : span.stop]

    def wire(self, span: Span) -> list:
        view = wire(self.view(span))
        return [view, view.nbytes, MPI.BYTE]

    def transfer(self, sends: Sequence[Message], receives: Sequence[Message]) -> Step:
        comm, tag = self.comm, self.tag
        match sends, receives:
            case [(dst, sent)], [(src, received)]:
                return partial(comm.Sendrecv, self.wire(sent), dst, tag, self.wire(received), src, tag)
            case [(dst, sent)], []:
                return partial(comm.Send, self.wire(sent), dst, tag)
            case [], [(src, received)]:
                return partial(comm.Recv, self.wire(received), src, tag)
        requests = [comm.Recv_init(self.wire(received), src, tag) for src, received in receives]
        requests += [comm.Send_init(self.wire(sent), dst, tag) for dst, sent in sends]
        self.requests += requests
        return partial(_start_and_wait, requests)


def _start_and_wait(requests: list[MPI.Prequest]) -> None:
    MPI.Prequest.Startall(requests)
    MPI.Prequest.Waitall(requests)


def _free_all(resources: list) -> None:
    if not MPI.Is_finalized():
        for resource in resources:
            resource.Free()


def _refuse_freed() -> None:
    raise RuntimeError("plan: it was freed and cannot be run any more; make a new one")
