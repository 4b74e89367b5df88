"""Started plans: any number in flight, moved by whatever tests or waits, equal to blocking runs bit for bit."""

import gc
import threading
import time

import numpy as np
import pytest

from mpi_allreduce import (
    AVG,
    IN_PLACE,
    MAX,
    SUM,
    UnfinishedError,
    UnsupportedError,
    algorithm_names,
    allreduce,
    iallreduce,
    plan,
    progress_thread,
)  # fmt: skip
from mpi_allreduce.algorithms import names
from mpi_allreduce.runtime import is_vendor, progress

pytestmark = pytest.mark.mpi
OURS = [name for name in algorithm_names() if not is_vendor(name)]
VENDORS = [name for name in algorithm_names() if is_vendor(name)]
REPETITIONS = 1000  # of 16 plans in flight


def noise(comm, count, seed=0, dtype=np.float32):
    """Values whose sum depends on the order of additions."""
    rng = np.random.default_rng([seed, comm.rank])
    return (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 3, count)).astype(dtype)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", OURS)
def test_started_run_has_the_same_bits_as_a_blocking_one(comm, name, channels):
    for count in (0, 1, comm.size + 1, 1003, 40_003):
        for op in (SUM, AVG, MAX):
            mine = noise(comm, count)
            run = plan(comm, mine, op=op, algorithm=name, channels=channels, segment_bytes=4096)
            blocking = run().copy()
            run.recvbuf[...] = -1
            assert run.start() is run
            np.testing.assert_array_equal(run.wait(), blocking)
            assert run.test()
            in_place = mine.copy()
            started = plan(comm, IN_PLACE, in_place, op=op, algorithm=name, channels=channels, segment_bytes=4096)
            assert started.start().wait() is in_place
            np.testing.assert_array_equal(in_place, blocking)
            exact = plan(comm, np.arange(count) + comm.rank, algorithm=name, channels=channels)
            np.testing.assert_array_equal(exact(), np.arange(count) * comm.size + sum(range(comm.size)))


@pytest.mark.parametrize("name", VENDORS)
def test_vendor_can_be_started_too(comm, name):
    mine = noise(comm, 1003)
    try:
        run = plan(comm, mine, op=AVG, algorithm=name)
    except UnsupportedError as reason:
        pytest.skip(str(reason))
    blocking = run().copy()
    run.recvbuf[...] = -1
    run.start()
    while not run.test():
        pass
    np.testing.assert_allclose(run.recvbuf, blocking, rtol=1e-5, atol=1e-4)


def test_sixteen_plans_in_flight_are_exact_whatever_the_order_of_tests(comm):
    """Plans of different sizes and algorithms, started and tested in an order that differs from rank to rank."""
    rng = np.random.default_rng(comm.rank)
    counts = [0, 1, 2, 3, 7, 16, 33, 64, 100, 129, 257, 500, 700, 1000, 1500, 2000]
    chosen = [(names() * 3)[i] for i in range(16)]
    plans, inputs = [], []
    for i, (name, count) in enumerate(zip(chosen, counts, strict=True)):
        inputs.append(np.empty(count, np.int64))
        plans.append(plan(comm, inputs[i], algorithm=name, channels=1 + i % 2))
    peers = sum(range(comm.size))
    wrong = 0
    for repetition in range(REPETITIONS // comm.size):
        for i, mine in enumerate(inputs):
            mine[...] = np.arange(mine.size) * i + comm.rank + repetition
        for i in rng.permutation(16):
            plans[i].start()
        left = list(rng.permutation(16))
        while left:
            i = left[rng.integers(len(left))]
            if plans[i].test() or rng.random() < 0.05:
                plans[i].wait()
                left.remove(i)
        for i, run in enumerate(plans):
            expected = (np.arange(run.recvbuf.size) * i + repetition) * comm.size + peers
            wrong += not np.array_equal(run.recvbuf, expected)
    assert wrong == 0


def test_ranks_may_wait_for_different_plans_and_run_blocking_calls_meanwhile(comm):
    """Each wait has to move all plans of its process, or this hangs."""
    first, second = plan(comm, np.ones(1000)), plan(comm, np.ones(2000), algorithm="linear")
    for run in (first, second) if comm.rank % 2 else (second, first):
        run.start()
    blocked = allreduce(comm, np.ones(5), algorithm="ring") if comm.rank % 2 else None
    for run in (second, first) if comm.rank % 2 else (first, second):
        run.wait()
    if blocked is None:
        blocked = allreduce(comm, np.ones(5), algorithm="ring")
    for result in (first.recvbuf, second.recvbuf, blocked):
        np.testing.assert_array_equal(result, comm.size)


def test_iallreduce_keeps_any_number_in_flight_on_one_communicator(comm):
    runs = [iallreduce(comm, np.full(50, comm.rank + i), algorithm=names()[i % len(names())]) for i in range(20)]
    for i, run in reversed(list(enumerate(runs))):
        np.testing.assert_array_equal(run.wait(), sum(range(comm.size)) + i * comm.size)


@pytest.mark.parametrize("name", [*VENDORS, *(f"reproducible:{name}" for name in VENDORS)])
def test_runs_of_the_library_in_flight_stay_in_order_whatever_is_tested_first(comm, name):
    """Several collectives each: the second call of one run must not overtake another's first on some ranks only."""
    counts = [1, 50_000, 7, 20_001, 300, 4096, 30, 90_000]
    others = [name, name, name, "vendor"]
    try:
        runs = [plan(comm, np.full(n, float(i)), algorithm=others[i % 4]) for i, n in enumerate(counts)]
    except UnsupportedError as reason:
        pytest.skip(str(reason))
    rng = np.random.default_rng(comm.rank)
    for _ in range(20):
        for i, run in enumerate(runs):
            run.sendbuf[:] = i + comm.rank
            run.start()
        for i in rng.permutation(len(runs)):
            time.sleep(rng.random() * 1e-3)
            np.testing.assert_array_equal(runs[i].wait(), comm.size * i + sum(range(comm.size)))


def test_progress_thread_ends_if_its_context_is_collected_in_the_thread_itself(comm, monkeypatch):
    """As happens to a GradientSync that nobody closed; an exception would be told of as unraisable."""
    monkeypatch.setattr(progress, "_running", [None])
    monkeypatch.setattr(progress, "_advance_all", gc.collect)
    before = threading.active_count()
    forgotten = [progress_thread()]
    forgotten[0].__enter__()
    forgotten.append(forgotten)
    del forgotten
    deadline = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_progress_thread_completes_a_plan_that_nobody_tests(comm):
    run = plan(comm, noise(comm, 100_000), algorithm="ring")
    expected = run().copy()
    run.recvbuf[...] = -1
    comm.Barrier()
    with progress_thread():
        run.start()
        deadline = time.monotonic() + 20
        while not run._running.done and time.monotonic() < deadline:
            time.sleep(0.01)
        assert run._running.done
        assert run.test()
    np.testing.assert_array_equal(run.recvbuf, expected)


@pytest.mark.parametrize("name", VENDORS)
def test_blocking_vendor_run_fits_together_with_runs_in_flight_on_some_ranks_only(comm, name):
    """MPI_Allreduce matches no MPI_Iallreduce; and a rank that waits in it must still serve the others' ring."""
    if comm.size < 2:
        pytest.skip("a single rank waits for nobody")
    try:
        vendor = plan(comm, np.ones(50_000), algorithm=name)
    except UnsupportedError as reason:
        pytest.skip(str(reason))
    for first_waits in (True, False):
        ring = plan(comm, np.full(100_000, 2.0), algorithm="ring")
        ring.start()
        if (comm.rank == 0) == first_waits:
            ring.wait()
        np.testing.assert_array_equal(vendor(), comm.size)
        np.testing.assert_array_equal(ring.wait(), 2 * comm.size)


@pytest.mark.parametrize("channels", [1, 2])
def test_wait_that_expires_tells_what_it_waits_for_and_can_be_repeated(comm, channels):
    if comm.size < 2:
        pytest.skip("a single rank waits for nobody")
    run = plan(comm, np.ones(1000 * comm.size, np.float32), algorithm="ring", channels=channels)
    comm.Barrier()
    if comm.rank == 0:
        run.start()
        with pytest.raises(UnfinishedError) as error:
            run.wait(timeout=0.2)
        text = str(error.value)
        assert f"ring of {1000 * comm.size} elements of float32 on rank 0 of {comm.size}" in text
        assert "not complete after 0.2 s" in text
        assert f"round 1 of {2 * comm.size - 2}" in text
        assert f"{4000 // channels} bytes from rank {comm.size - 1}" in text
        with pytest.raises(RuntimeError, match="in flight"):
            run.free()
        with pytest.raises(RuntimeError, match="started already"):
            run.start()
    comm.Barrier()
    if comm.rank:
        run.start()
    np.testing.assert_array_equal(run.wait(), comm.size)


def test_environment_limits_blocking_runs(comm, monkeypatch):
    if comm.size < 2:
        pytest.skip("a single rank waits for nobody")
    monkeypatch.setenv("MPI_ALLREDUCE_TIMEOUT", "0.2")
    run = plan(comm, np.ones(1000), algorithm="ring")
    comm.Barrier()
    if comm.rank == 0:
        with pytest.raises(UnfinishedError):
            run()
    comm.Barrier()
    if comm.rank:
        run()
    np.testing.assert_array_equal(run.wait(30), comm.size)
    monkeypatch.setenv("MPI_ALLREDUCE_TIMEOUT", "soon")
    with pytest.raises(ValueError, match="MPI_ALLREDUCE_TIMEOUT: expected seconds, got 'soon'"):
        plan(comm, np.ones(10))


def test_operator_that_fails_in_flight_raises_where_it_is_waited_for(comm):
    if comm.size < 2:
        pytest.skip("a single rank reduces nothing")

    def fails(left, right):
        if left.size > 3:
            raise ArithmeticError("no")
        return left

    run = plan(comm, np.ones(1000), op=fails, algorithm="recursive_doubling").start()
    other = plan(comm, np.ones(1000), algorithm="ring").start()
    np.testing.assert_array_equal(other.wait(), comm.size)
    if comm.size & (comm.size - 1) == 0:
        with pytest.raises(ArithmeticError):
            run.wait()


@pytest.mark.parametrize("way", ["spin", "yield", "sleep", "auto"])
def test_every_way_of_waiting_ends(comm, monkeypatch, way):
    monkeypatch.setenv("MPI_ALLREDUCE_WAIT", way)
    fresh = comm.Dup()
    run = plan(fresh, noise(comm, 5000), algorithm="ring").start()
    np.testing.assert_array_equal(run.wait(), allreduce(comm, noise(comm, 5000), algorithm="ring"))
    run.free()
    fresh.Free()
