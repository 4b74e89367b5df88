"""Bad calls: each names its argument and what would do, before anything is sent."""

import numpy as np
import pytest

from mpi_allreduce import IN_PLACE, LAND, SUM, DisagreementError, allreduce, plan
from mpi_allreduce.algorithms import names

pytestmark = pytest.mark.mpi

ok = np.ones(6)


def read_only():
    array = np.ones(6)
    array.flags.writeable = False
    return array


BAD = {
    "a list": (dict(sendbuf=[1.0]), TypeError, "sendbuf: expected an array of NumPy, CuPy or PyTorch, got list"),
    "None": (dict(sendbuf=None), TypeError, "sendbuf: expected an array of NumPy, CuPy or PyTorch, got NoneType"),
    "not contiguous": (
        dict(sendbuf=np.ones((4, 4))[:, 1]),
        ValueError,
        "sendbuf: .*not C-contiguous.*ascontiguousarray",
    ),
    "Fortran order": (dict(sendbuf=np.ones((4, 4), order="F")), ValueError, "sendbuf: .*not C-contiguous"),
    "receive not contiguous": (dict(recvbuf=np.ones(12)[::2]), ValueError, "recvbuf: .*not C-contiguous"),
    "masked": (dict(sendbuf=np.ma.masked_array([1.0], [True])), TypeError, "sendbuf: a masked array.*filled"),
    "objects": (dict(sendbuf=np.array([1, None])), TypeError, "sendbuf: dtype object holds Python objects"),
    "strings": (dict(sendbuf=np.array(["a"])), TypeError, "sendbuf: dtype <U1 is not numeric"),
    "foreign byte order": (dict(sendbuf=np.ones(6, ">f8")), TypeError, "sendbuf: .*byte order.*astype"),
    "other dtype": (dict(recvbuf=np.ones(6, "f4")), TypeError, "recvbuf: dtype float32 differs from sendbuf's float64"),
    "other shape": (dict(recvbuf=np.ones(7)), ValueError, r"recvbuf: shape \(7,\) differs from sendbuf's \(6,\)"),
    "read-only receive": (dict(recvbuf=read_only()), ValueError, "recvbuf: is read-only"),
    "the same array": (dict(recvbuf=ok), ValueError, "recvbuf: overlaps sendbuf.*IN_PLACE"),
    "overlapping": (dict(sendbuf=(both := np.ones(9))[:6], recvbuf=both[3:]), ValueError, "recvbuf: overlaps sendbuf"),
    "in place without buffer": (dict(sendbuf=IN_PLACE), ValueError, "recvbuf: in place"),
    "unknown algorithm": (
        dict(algorithm="rings"),
        ValueError,
        f"algorithm: .*'rings'.*{', '.join(names())}, shared, .*vendor.*'ring'",
    ),
    "algorithm not a name": (
        dict(algorithm=None),
        TypeError,
        "algorithm: expected a name, got None; known are linear, ",
    ),
    "operator not one": (dict(op="SUM"), TypeError, "op: expected one of SUM, .*AVG or a function"),
    "operator of other types": (dict(op=LAND), TypeError, "op: LAND does not apply to dtype float64; .*SUM"),
    "reordering": (
        dict(op=lambda a, b: a - b, algorithm="ring"),
        ValueError,
        "algorithm: 'ring' reorders operands.*linear, binomial_tree, .*rabenseifner, .*dual_root, shared, vendor",
    ),
    "function that fails": (
        dict(op=lambda a, b: 1 / 0, commutative=True),
        TypeError,
        "op: <lambda> fails.*division by zero",
    ),
    "contradicting operator": (dict(op=SUM, commutative=False), ValueError, "commutative: False contradicts op SUM"),
}


@pytest.mark.parametrize("call", [allreduce, plan])
@pytest.mark.parametrize("case", BAD)
def test_bad_call_names_the_argument_and_sends_nothing(comm, call, case):
    """Only one rank makes the bad call: if anything were sent or waited for, this would hang."""
    arguments, error, message = BAD[case]
    if comm.rank == comm.size - 1:
        with pytest.raises(error, match=message):
            call(comm, **{"sendbuf": ok, "op": SUM, **arguments})


@pytest.mark.parametrize("call", [allreduce, plan])
def test_communicator_must_be_one(comm, call):
    from mpi4py import MPI

    with pytest.raises(TypeError, match="comm: expected an mpi4py intracommunicator, got int"):
        call(3, ok)
    with pytest.raises(ValueError, match="comm: got COMM_NULL"):
        call(MPI.COMM_NULL, ok)


@pytest.mark.parametrize("call", [allreduce, plan])
def test_intercommunicator_is_refused(comm, call):
    if comm.size < 2:
        pytest.skip("an intercommunicator needs two ranks")
    half = comm.Split(comm.rank % 2)
    inter = half.Create_intercomm(0, comm, 1 - comm.rank % 2)
    try:
        with pytest.raises(TypeError, match=r"comm: got an intercommunicator.*Merge"):
            call(inter, ok)
    finally:
        inter.Free()
        half.Free()


def test_operators_made_by_mpi_are_refused(comm):
    from mpi4py import MPI

    op = MPI.Op.Create(lambda a, b, t: None)
    with pytest.raises(TypeError, match=r"op: of MPI's own operators only SUM, .*can be used"):
        allreduce(comm, ok, op=op)
    op.Free()


@pytest.mark.parametrize("segment", [0, -1, 2**31, 1.5])
def test_segment_must_fit_a_message(comm, segment):
    with pytest.raises(ValueError, match="segment_bytes: expected 1"):
        plan(comm, ok, segment_bytes=segment)


DIFFERENCES = {
    "count": (dict(sendbuf=np.ones(7)), "count: 7 on rank {odd}, but 6 on"),
    "dtype": (dict(sendbuf=np.ones(6, "f4")), "dtype: 'float32' on rank {odd}, but 'float64' on"),
    "op": (dict(op=np.maximum, commutative=True), "op: 'maximum' on rank {odd}, but 'SUM' on"),
    "algorithm": (dict(algorithm="circulant"), "algorithm: 'circulant' on rank {odd}, but 'auto' on"),
    "segment": (dict(segment_bytes=64), "segment_bytes: 64 on rank {odd}, but 4194304 on"),
    "bad argument": (dict(sendbuf=np.ones(12)[::2]), "on rank {odd}: ValueError: sendbuf: .*not C-contiguous"),
}


@pytest.mark.parametrize("by", ["argument", "environment"])
@pytest.mark.parametrize("call", [allreduce, plan])
@pytest.mark.parametrize("difference", DIFFERENCES)
def test_with_check_every_rank_raises_the_same_error_naming_the_rank_that_differs(
    comm, call, difference, by, monkeypatch
):
    if comm.size < 3:
        pytest.skip("with fewer than three ranks there is no majority")
    changes, message = DIFFERENCES[difference]
    if difference == "segment" and call is allreduce:
        pytest.skip("allreduce() has no segment_bytes")
    odd = comm.size - 2
    arguments = {"sendbuf": ok, **(changes if comm.rank == odd else {})}
    if by == "environment":
        monkeypatch.setenv("MPI_ALLREDUCE_CHECK", "1")
    else:
        arguments["check"] = True
    with pytest.raises(DisagreementError, match=message.format(odd=odd)) as caught:
        call(comm, **arguments)
    assert len(set(comm.allgather(str(caught.value)))) == 1
    assert (allreduce(comm, ok) == comm.size).all(), "and the communicator is as good as before"


def test_with_check_an_error_that_all_ranks_make_is_the_plain_one(comm):
    with pytest.raises(ValueError, match="algorithm: unknown name 'rings'"):
        allreduce(comm, ok, algorithm="rings", check=True)


def test_with_check_good_calls_pass(comm):
    assert (allreduce(comm, ok, check=True) == comm.size).all()
    assert (plan(comm, ok, check=True)() == comm.size).all()
