"""Whole launches on real ranks: timed, validated, recorded; and wrong results are found."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpi_allreduce.algorithms import COPY, get, registry
from mpi_allreduce.bench import read, read_launches
from mpi_allreduce.bench.passes import MOST_PASSES
from mpi_allreduce.bench.settings import Settings
from mpi_allreduce.memory import dtype_named

pytestmark = pytest.mark.mpi

QUICK = Settings(
    algorithms=("ring", "recursive_doubling", "vendor"),
    sizes=(4, 1000, 70_000),
    dtype=np.dtype("f4"),
    max_seconds=1.0,
    probe_seconds=0.0,
    passes=2,
    repetitions=(5, 50),
)

TWO_CALLS = ("vendor_reduce_bcast", "vendor_reduce_scatter_allgather", "vendor")

VARIANTS = {
    "plain": {},
    "in place": {"in_place": True},
    "streaming": {"mode": "streaming"},
    "streaming in place": {"mode": "streaming", "in_place": True},
    "skewed": {"skew": "random:2"},
    "hot": {"buffers": 1},
    "half": {"dtype": np.dtype("f2"), "algorithms": ("ring", "vendor")},
    "bfloat16 mean": {"dtype": dtype_named("bfloat16"), "op": "AVG", "algorithms": ("circulant", "vendor")},
    "complex product": {"dtype": np.dtype("c8"), "op": "PROD"},
    "pairs": {"dtype": dtype_named("float64_int"), "op": "MINLOC"},
    "integers": {"dtype": np.dtype("i4"), "data": "integers"},
    "logical": {"dtype": np.dtype("?"), "op": "LXOR"},
    "two calls": {"algorithms": TWO_CALLS},
    "two calls in place": {"algorithms": TWO_CALLS, "in_place": True, "dtype": dtype_named("bfloat16"), "op": "AVG"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_launch_times_and_records_every_case_and_finds_it_right(bench, comm, variant):
    right, rows, path, out = bench(**VARIANTS[variant])
    settings = replace(QUICK, **VARIANTS[variant])
    assert right
    assert len(rows) == 3 * len(settings.algorithms)
    for row in rows:
        assert row["wrong"] == 0
        assert row["identical"]
        assert row["repeatable"]
        assert row["seconds"].shape == (row["repetitions"], comm.size)
        assert row["visits"] >= 1
        assert row["visits"] <= row["repetitions"] <= 50 * row["visits"]
        assert (row["seconds"] > 0).all()
        assert row["low"] <= row["median"] <= row["high"] <= row["maximum"]
        assert (row["op"], row["mode"], row["in_place"]) == (settings.op, settings.mode, settings.in_place)
        assert row["error"] < {2: 2e-2, 4: 1e-5}.get(settings.dtype.itemsize, 1e-5)
        if settings.skew != "none":
            assert row["delays"].shape == row["seconds"].shape
            assert 0 <= row["delays"].max() <= 2 * row["baseline"]
    if comm.rank == 0:
        facts = read_launches(path)["launch-0001"]
        assert facts["finished"]
        assert facts["environment"]["ranks"] == comm.size
        assert len(facts["environment"]["host_of_rank"]) == comm.size
        assert facts["environment"]["clock_floor"] < 1e-4
        assert facts["environment"]["bound_by"] in ("launcher", "benchmark", "nobody")
        assert "Every result is right" in out
        assert "vendor/ours" in out
    else:
        assert out == "", "only rank 0 speaks"


@pytest.fixture
def forgetful_ring(monkeypatch):
    """A ring whose last block is never passed on to the last rank."""
    honest = get("ring")

    def generate(rank, size):
        rounds = honest.schedule(rank, size)
        (last,) = rounds[-1]
        yield from rounds[:-1]
        if rank == size - 1:
            yield (replace(last, src=None, received=()),)
        elif rank == (size - 2) % size:
            yield (replace(last, dst=None, sent=(), action=COPY),)
        else:
            yield rounds[-1]

    broken = replace(honest, name="forgetful", generate=generate)
    monkeypatch.setitem(registry._algorithms, "forgetful", broken)


def test_a_wrong_algorithm_is_found_and_said(bench, comm, forgetful_ring):
    if comm.size == 1:
        pytest.skip("one rank exchanges nothing")
    right, rows, _, out = bench(algorithms=("forgetful", "vendor"), sizes=(70_000,))
    assert not right
    wrong = {row["algorithm"]: row["wrong"] for row in rows}
    block = 70_000 // 4 // comm.size
    assert wrong["vendor"] == 0
    assert wrong["forgetful"] >= block, "at least the block that is missing on one rank"
    assert not next(row for row in rows if row["algorithm"] == "forgetful")["identical"]
    if comm.rank == 0:
        assert "WRONG results in 1 of 2 cases" in out
        assert "NOT THE SAME BITS on all ranks (marked !): forgetful" in out


def test_an_algorithm_that_goes_wrong_only_while_it_is_timed_is_found(bench, comm, monkeypatch):
    """Right when it is validated, wrong from the tenth run on."""
    from mpi_allreduce.runtime import Plan

    honest = Plan.__call__

    def treacherous(self):
        self.runs = getattr(self, "runs", 0) + 1
        result = honest(self)
        if self.algorithm == "ring" and self.runs >= 10:
            result[-1] += 1
        return result

    monkeypatch.setattr(Plan, "__call__", treacherous)
    for variant in ({}, {"in_place": True}, {"in_place": True, "mode": "streaming"}):
        right, rows, _, _ = bench(sizes=(1000,), buffers=1, repetitions=(20, 50), **variant)
        assert not right
        assert [row["wrong"] for row in rows[-3:] if row["algorithm"] != "ring"] == [0, 0]


def test_a_call_that_does_nothing_while_it_is_timed_is_found(bench, comm, monkeypatch):
    """The right answer of the validation must not be taken for that of the timed runs."""
    from mpi_allreduce.bench import run as bench_run

    honest = bench_run._Launch._bind

    def idle(self, case, *buffers):
        made, timed = honest(self, case, *buffers)
        return made, replace(timed, call=lambda: None) if case.algorithm == "ring" else timed

    monkeypatch.setattr(bench_run._Launch, "_bind", idle)
    right, rows, _, _ = bench(sizes=(1000,))
    assert not right
    assert {row["algorithm"]: row["wrong"] > 0 for row in rows} == {
        "ring": True, "recursive_doubling": False, "vendor": False,
    }  # fmt: skip


def test_gradients_so_small_that_halves_underflow_are_not_called_wrong(bench, comm, tmp_path_factory):
    path = comm.bcast(str(tmp_path_factory.mktemp("data") / "g.npy") if comm.rank == 0 else None)
    if comm.rank == 0:
        np.save(path, np.random.default_rng(1).normal(0, 3e-7, 1000))
    comm.Barrier()
    right, _, _, _ = bench(data=path, dtype=np.dtype("f2"), op="AVG", sizes=(1000,))
    assert right


def test_a_last_bit_that_is_wrong_shows_on_integers(bench, comm, monkeypatch):
    """On data that must be rounded it could not be told from rounding."""
    from mpi_allreduce.runtime import Plan

    honest = Plan.__call__

    def off_by_a_bit(self):
        result = honest(self)
        if self.algorithm == "ring":
            result[3] = np.nextafter(result[3], np.float32(np.inf))
        return result

    monkeypatch.setattr(Plan, "__call__", off_by_a_bit)
    right, rows, _, _ = bench(sizes=(1000,))
    assert not right
    assert {row["algorithm"]: row["wrong"] for row in rows}["ring"] == comm.size


def test_a_user_s_own_gradients_are_timed(bench, comm, tmp_path_factory):
    path = comm.bcast(str(tmp_path_factory.mktemp("data") / "g.npy") if comm.rank == 0 else None)
    if comm.rank == 0:
        np.save(path, np.random.default_rng(1).normal(0, 1e-3, (100, 30)))
    comm.Barrier()
    right, rows, _, _ = bench(data=path)
    assert right
    assert {row["data"] for row in rows} == {path}


def test_a_file_that_only_one_rank_cannot_read_is_an_error_on_all(bench, comm, tmp_path_factory):
    from mpi_allreduce.errors import UsageError

    folder = comm.bcast(tmp_path_factory.mktemp("data") if comm.rank == 0 else None)
    if comm.rank < comm.size - 1:
        np.save(folder / f"g{comm.rank}.npy", np.ones(3))
    comm.Barrier()
    with pytest.raises(UsageError, match=f"rank {comm.size - 1}: data: "):
        bench(data=str(folder / "g{rank}.npy"))


def test_a_record_that_cannot_be_written_is_found_before_anything_is_timed(comm):
    from mpi_allreduce.bench.run import run
    from mpi_allreduce.errors import UsageError

    with pytest.raises(UsageError, match=r"rank 0: .*nowhere"):
        run(QUICK, Path("/proc/nowhere/r.h5"), comm)


def test_a_signal_to_one_rank_ends_the_run_between_repetitions_and_resume_completes_it(comm, tmp_path_factory, capsys):
    """The resumed record has the cases of an uninterrupted one, and each in as many visits."""
    import os
    import signal
    import threading

    from mpi_allreduce.bench.run import RIGHT, STOPPED, find_unfinished, run

    path = comm.bcast(tmp_path_factory.mktemp("bench") / "r.h5" if comm.rank == 0 else None)
    settings = replace(QUICK, max_seconds=20.0, passes=MOST_PASSES, repetitions=(300, 500))
    timer = threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGTERM])
    if comm.rank == comm.size // 2:
        timer.start()
    status = run(settings, path, comm)
    timer.cancel()
    assert status == STOPPED
    rows = comm.bcast(read(path) if comm.rank == 0 else None)
    assert sum(row["visits"] for row in rows) < 9 * MOST_PASSES
    again, launch = find_unfinished(path, comm)
    assert again == settings
    again = replace(again, passes=3, repetitions=(5, 50))  # it need not take long
    assert run(again, path, comm, resume=launch) == RIGHT
    rows = comm.bcast(read(path) if comm.rank == 0 else None)
    cases = {(row["algorithm"], row["bytes"]): row["visits"] for row in rows}
    assert cases.keys() == {(algorithm, size) for algorithm in settings.algorithms for size in settings.sizes}
    assert min(cases.values()) >= 3
    assert find_unfinished(path, comm)[1] == ""


def test_a_launch_of_another_number_of_ranks_cannot_be_resumed(comm, tmp_path_factory):
    from mpi_allreduce.bench.records import Recorder
    from mpi_allreduce.bench.run import find_unfinished
    from mpi_allreduce.errors import UsageError

    path = comm.bcast(tmp_path_factory.mktemp("bench") / "r.h5" if comm.rank == 0 else None)
    if comm.rank == 0:
        Recorder(path, {"ranks": comm.size + 1}, QUICK.as_dict())
    with pytest.raises(UsageError, match=f"ran on {comm.size + 1} ranks, but this run has {comm.size}"):
        find_unfinished(path, comm)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithms": ("rings",)}, "algorithm: unknown name 'rings'"),
        ({"op": "MINUS"}, "op: unknown operator 'MINUS'"),
        ({"op": "LAND"}, "op: LAND does not apply to dtype float32"),
        ({"skew": "early"}, "skew: expected none"),
        ({"passes": 0}, "passes: expected 1 to 20, got 0"),
        ({"ci": -0.01}, "ci: expected more than 0, got -0.01"),
        ({"max_seconds": float("nan")}, "max_seconds: expected more than 0, got nan"),
        ({"repetitions": (5, 4)}, "repetitions: expected 1 <= MIN <= MAX, got"),
        ({"buffers": -1}, "buffers: expected 0 or more, got -1"),
        ({"skew": "late", "mode": "streaming"}, "skew: late needs mode isolated"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_sent(comm, changes, message):
    from mpi_allreduce.bench.run import check_settings

    if comm.rank == 0:
        with pytest.raises((ValueError, TypeError), match=message):
            check_settings(replace(QUICK, **changes))


def test_nobody_leaves_the_barrier_before_the_last_has_come(comm):
    import time

    from mpi_allreduce.bench.barrier import Barrier

    barrier = Barrier(comm)
    for late in range(comm.size):
        barrier()
        if comm.rank == late:
            time.sleep(0.02)
        came = time.monotonic()
        barrier()
        left = time.monotonic()
        assert min(comm.allgather(left)) >= max(comm.allgather(came)), "all on one machine: one clock"
