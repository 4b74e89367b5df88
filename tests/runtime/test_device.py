"""Arrays of a device: a double that works as late as it may, under real ranks and messages.

``aware``: MPI gets the arrays' own memory.  ``device``: messages are staged, additions are the device's.  ``host``: the
whole buffer is staged, and everything else happens on the host.
"""

import numpy as np
import pytest
from mpi4py import MPI

import mpi_allreduce as ma
from mpi_allreduce.codecs import device as codecs_of_devices
from mpi_allreduce.memory import arrays
from mpi_allreduce.runtime import awareness, is_vendor, staging
from tests.double import Double, DoublePacking, has_device, real_device

pytestmark = pytest.mark.mpi

VENDORS = [n for n in ma.algorithm_names() if is_vendor(n)]
SCHEDULES = [n for n in ma.algorithm_names() if n not in ("shared", "hierarchical", *VENDORS)]
WAYS = {"aware": ("1", ""), "device": ("0", "device"), "host": ("0", "host")}


ON_GPU = pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not has_device(), reason="no CUDA device")])


@pytest.fixture(params=["double", ON_GPU])
def device(request, comm, monkeypatch):
    if request.param == "cuda":
        return real_device(comm.rank)
    device = Double()
    monkeypatch.setattr(arrays, "cuda_device", lambda value: device)
    monkeypatch.setattr(codecs_of_devices, "make_packing", DoublePacking)
    return device


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    monkeypatch.delenv(awareness.VARIABLE, raising=False)
    aware, place = WAYS[request.param]
    if aware == "1" and request.node.get_closest_marker("gpu") and not awareness.claimed().aware:
        pytest.skip("this MPI takes no device pointers")
    monkeypatch.setenv(awareness.VARIABLE, aware)
    monkeypatch.setenv(staging.VARIABLE, place)
    return request.param


def numbers(rank, run, count, dtype=np.float32):
    return np.random.default_rng([rank, run]).integers(-4, 5, count).astype(dtype)


def total(comm, run, count, dtype=np.float32):
    return sum(numbers(rank, run, count, dtype) for rank in range(comm.size)).astype(dtype)


@pytest.mark.parametrize("count", [0, 1, 10_001])
@pytest.mark.parametrize("algorithm", SCHEDULES)
def test_every_schedule_waits_for_the_queues_and_no_more(comm, device, way, algorithm, count):
    """Contributions are still queued when a run begins, and the result is read without waiting for it."""
    mine = device.write(numbers(comm.rank, 0, count))
    result = device.write(np.zeros(count, np.float32))
    out_of_place = ma.plan(comm, mine, result, algorithm=algorithm, channels=2)
    in_place = ma.plan(comm, ma.IN_PLACE, mine, algorithm=algorithm)
    for run in range(3):
        device.put(mine, numbers(comm.rank, run, count))
        assert (out_of_place() if run % 2 else out_of_place.start().wait()) is result
        assert np.array_equal(device.get(result), total(comm, run, count))
        device.put(mine, numbers(comm.rank, run, count))
        (in_place if run % 2 else in_place.start().wait)()
        assert np.array_equal(device.get(mine), total(comm, run, count))
    if way == "aware" and comm.size > 1 and count > comm.size:
        assert device.checked is None or device.checked > 0, "the double has seen no message"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "uint8", "bool", "complex64"])
def test_every_element_type_gets_its_operators(comm, device, way, dtype):
    from mpi_allreduce.memory import OPERATORS, dtype_named, kind_of

    dtype = dtype_named(dtype)
    contributions = [numbers(rank, 0, 300, dtype) for rank in range(comm.size)]
    for op in OPERATORS.values():
        if kind_of(dtype) not in op.kinds:
            continue
        expected = ma.allreduce(comm, contributions[comm.rank], op=op, algorithm="ring")
        mine = device.write(contributions[comm.rank])
        assert device.get(ma.allreduce(comm, mine, op=op, algorithm="ring")).tobytes() == expected.tobytes()


@pytest.mark.parametrize("algorithm", ["auto", "shared", "hierarchical", *VENDORS])
def test_other_ways_of_execution_take_device_arrays_too(comm, device, way, algorithm):
    for run in range(2):
        mine = device.write(numbers(comm.rank, run, 600).reshape(24, 25))
        result = ma.allreduce(comm, mine, algorithm=algorithm)
        assert isinstance(result, device.array_type)
        assert result.shape == (24, 25)
        assert np.array_equal(device.get(result).ravel(), total(comm, run, 600))


@pytest.mark.parametrize("options", [
    {"codec": "fp16"}, {"codec": "int8", "algorithm": "pairwise"}, {"codec": "topk:0.1", "error_feedback": True},
    {"codec": "powersgd:2"}, {"reproducible": True}, {"digest": True}, {"digest": True, "algorithm": "shared"},
    {"op": ma.AVG}, {"op": lambda left, right: left + right, "algorithm": "binomial_tree"},
])  # fmt: skip
def test_options_mean_the_same_as_on_the_host(comm, device, way, options):
    if options.get("error_feedback"):
        options = {**options, "error_feedback": ma.ErrorFeedback(600)}
    options = {"algorithm": "ring", **options}  # "auto" may choose another one on a device
    values = np.random.default_rng(comm.rank).standard_normal((20, 30)).astype(np.float32)
    again = {**options, "error_feedback": ma.ErrorFeedback(600)} if options.get("error_feedback") else options
    if "op" in options and not isinstance(options["op"], ma.Operator) and way != "host" and device.name[0] == "d":
        pytest.skip("the double's arrays cannot be added; CuPy's can")
    expected = ma.plan(comm, values, **again)
    made = ma.plan(comm, device.write(values), **options)
    for _ in range(2):
        assert device.get(made()).tobytes() == expected().tobytes()


@pytest.mark.parametrize("codec", ["fp16", "bf16", "int8", "int8:block=100"])
@pytest.mark.parametrize("algorithm", SCHEDULES)
def test_a_codec_of_the_device_has_the_hosts_bits_and_its_packets_cross_the_bus(comm, device, way, algorithm, codec):
    made = ma.plan(comm, device.write(np.zeros(5003, np.float32)), algorithm=algorithm, codec=codec)
    values = np.zeros(5003, np.float32)
    expected = ma.plan(comm, values, algorithm=algorithm, codec=codec)
    for run in range(3):
        values[:] = np.random.default_rng([run, comm.rank]).standard_normal(5003)
        device.put(made.sendbuf, values)
        before = getattr(device, "crossed", 0)
        result = made() if run % 2 else made.start().wait()
        crossed = getattr(device, "crossed", 0) - before
        most = (
            {"aware": 0, "device": made.last_run.sent_bytes, "host": values.nbytes}[way] if comm.size > 1 else crossed
        )
        assert crossed <= most + 4 * 64, "and the blocks' flags"
        result = device.get(result)
        assert result.tobytes() == expected().tobytes()
        assert made.last_run.sent_bytes == expected.last_run.sent_bytes
    if comm.size > 1:
        values[comm.rank] = np.nan if comm.rank == comm.size - 1 else 1
        device.put(made.sendbuf, values)
        with pytest.raises(ma.NonFiniteError, match="holds infinity or NaN"):
            made()


def test_plans_in_flight_together_and_a_thread_that_moves_them(comm, device, way):
    made = [
        ma.plan(comm, device.write(numbers(comm.rank, run, 3000)), algorithm=algorithm)
        for run, algorithm in enumerate(("ring", "pairwise", "double_binary_tree"))
    ]
    order = np.random.default_rng(comm.rank).permutation(3)
    for i in order:
        made[i].start()
    for run, each in enumerate(made):
        assert np.array_equal(device.get(each.wait()), total(comm, run, 3000))


def test_host_and_device_arrays_do_not_mix(comm, device):
    on_device, on_host = device.write(np.zeros(3, np.float32)), np.zeros(3, np.float32)
    with pytest.raises(TypeError, match=rf"recvbuf: is in host memory, but sendbuf in {device.name}; copy one"):
        ma.plan(comm, on_device, on_host)
    with pytest.raises(TypeError, match=rf"recvbuf: is in {device.name}, but sendbuf in host memory; copy one"):
        ma.allreduce(comm, on_host, on_device)
    with (
        pytest.raises(ma.DisagreementError, match="memory: 'host' on rank 0, but 'device'")
        if comm.size > 2
        else (pytest.raises(ma.DisagreementError) if comm.size > 1 else pytest.raises(ZeroDivisionError))
    ):
        ma.allreduce(comm, on_host if comm.rank == 0 else on_device, check=True)
        1 / (comm.size - 1)


def test_vendor_beside_computation_is_refused_where_it_would_crash(comm, device, monkeypatch):
    if device.checked is None and not awareness.claimed().aware:
        pytest.skip("this MPI takes no device pointers")
    monkeypatch.setenv(awareness.VARIABLE, "1")
    made = ma.plan(comm, device.write(numbers(comm.rank, 0, 100)), algorithm="vendor")
    if "Open MPI" in MPI.Get_library_version():
        with pytest.raises(ma.UnsupportedError, match="Open MPI's MPI_Iallreduce crashes on buffers of a device"):
            made.start().wait()
    else:
        assert np.array_equal(device.get(made.start().wait()), total(comm, 0, 100))
    assert np.array_equal(device.get(made()), total(comm, 0, 100))


def test_unequal_blocks_of_a_device_are_refused_where_the_library_does_not_take_them(comm, device, monkeypatch):
    if device.checked is None and not awareness.claimed().aware:
        pytest.skip("this MPI takes no device pointers")
    monkeypatch.setenv(awareness.VARIABLE, "1")
    count, name = comm.size + 1, "vendor_reduce_scatter_allgather"
    mine = device.write(numbers(comm.rank, 0, count))
    if "Open MPI" in MPI.Get_library_version() and comm.size > 1:
        with pytest.raises(ma.UnsupportedError, match=f"divisible by {comm.size}"):
            ma.allreduce(comm, mine, algorithm=name)
    else:
        assert np.array_equal(device.get(ma.allreduce(comm, mine, algorithm=name)), total(comm, 0, count))


@pytest.mark.parametrize(
    ("proof", "aware", "reason"),
    [
        ("print('right')", True, "a message to itself arrived"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", False, "failed with status -11"),
        ("print('wrong')", False, "failed with status 0"),
        ("raise SystemExit('no device')", False, "no device"),
    ],
)
def test_a_library_that_says_it_is_aware_is_not_trusted_before_a_message_arrived(
    comm, device, monkeypatch, proof, aware, reason
):
    monkeypatch.delenv(awareness.VARIABLE, raising=False)
    monkeypatch.setattr(awareness, "claimed", lambda: awareness.Awareness(True, "it says so"))
    monkeypatch.setattr(device, "proof", proof, raising=False)
    found = awareness.find_awareness(comm, comm, device)
    assert found.aware is aware
    assert reason in found.reason
    assert len(set(comm.allgather(str(found)))) == 1


def test_no_wheel_is_aware_and_the_environment_decides(comm, device, monkeypatch):
    monkeypatch.delenv(awareness.VARIABLE, raising=False)
    assert not awareness.claimed().aware, "if this fails, this MPI is CUDA-aware: fine, but the wheels are not"
    monkeypatch.setenv(awareness.VARIABLE, "1" if comm.rank else "0")
    found = awareness.find_awareness(comm, comm, device)
    assert not found.aware, "all ranks must be"
    monkeypatch.setattr(awareness, "claimed", lambda: awareness.Awareness(True, "it says so"))
    if comm.rank:
        monkeypatch.setenv(awareness.VARIABLE, "1")
    else:
        monkeypatch.delenv(awareness.VARIABLE)
    assert awareness.find_awareness(comm, comm, device).aware, "some ranks decided, others proved: nobody hangs"
    monkeypatch.undo()
    monkeypatch.setenv(awareness.VARIABLE, "yes")
    with pytest.raises(ValueError, match="MPI_ALLREDUCE_CUDA_AWARE: expected 0 or 1, got 'yes'"):
        awareness.claimed()


class ByProtocol:
    """An array of another library, known by what it exports alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


def test_host_arrays_of_other_libraries_are_used_in_place(comm):
    mine, result = np.full((2, 3), comm.rank + 1.0), np.zeros((2, 3))
    total = comm.size * (comm.size + 1) / 2
    given, back = ByProtocol(mine), ByProtocol(result)
    for _ in range(2):
        assert ma.allreduce(comm, given, back, algorithm="ring") is back
        assert np.array_equal(result, np.full((2, 3), total))
    made = ma.plan(comm, ma.IN_PLACE, given, algorithm="ring")
    assert made() is given
    assert np.array_equal(mine, np.full((2, 3), total))


@pytest.mark.skipif(has_device(), reason="there is a device")
def test_without_cupy_or_a_driver_the_error_tells_what_is_missing(comm):
    class OnDevice:
        @property
        def __cuda_array_interface__(self):
            return {"data": (0x10000, False), "shape": (3,), "typestr": "<f4", "version": 3}

    missing = "sendbuf: (arrays .* need CuPy: pip install|this process sees no CUDA device)"
    with pytest.raises((ModuleNotFoundError, RuntimeError), match=missing):
        ma.allreduce(comm, OnDevice())
    with pytest.raises(TypeError, match="sendbuf: expected an array of NumPy, CuPy or PyTorch, got list"):
        ma.allreduce(comm, [1.0])
    with pytest.raises(ma.UnsupportedError, match="nccl: works on arrays of a CUDA device"):
        ma.allreduce(comm, np.ones(3), algorithm="nccl")
