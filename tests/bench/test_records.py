"""Records: what is written can be read, and what was written is never lost."""

import fcntl
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time

import h5py
import numpy as np
import pytest

from mpi_allreduce.bench import pool, read, read_launches, records
from mpi_allreduce.bench.records import FORMAT, VERSION, Recorder

CASE = {
    "algorithm": "ring", "bytes": 1000, "count": 250, "dtype": "float32", "op": "SUM", "codec": "none",
    "memory": "host", "mode": "isolated", "skew": "none", "data": "normal", "in_place": False, "buffers": 2, "ranks": 4,
    "pass": 0, "wrong": 0, "error": 1e-8, "identical": True, "repeatable": True, "rounds": 6, "sent_bytes": 1500,
    "scratch_bytes": 0, "native_op": True, "warmups": 6, "ended_by": "interval", "baseline": 0.0,
}  # fmt: skip
SECONDS = np.arange(1.0, 41.0).reshape(10, 4)


def record(path, cases=3):
    recorder = Recorder(path, {"started": "2026-01-01", "ranks": 4, "variables": {"A": "b"}}, {"ci": 0.03}, "try")
    for i in range(cases):
        recorder.add({**CASE, "bytes": 1000 + i}, SECONDS + i)
    recorder.finish()
    return recorder


def test_what_is_written_is_read_back(tmp_path):
    record(tmp_path / "new" / "r.h5")
    rows = read(tmp_path / "new" / "r.h5")
    assert [row["bytes"] for row in rows] == [1000, 1001, 1002]
    row = rows[1]
    assert {key: row[key] for key in CASE if key not in ("pass", "ended_by")} == {
        key: value for key, value in {**CASE, "bytes": 1001}.items() if key not in ("pass", "ended_by")
    }
    assert (row["launch"], row["label"], row["visits"]) == ("launch-0001", "try", 1)
    np.testing.assert_array_equal(row["seconds"], SECONDS + 1)
    times = (SECONDS + 1).max(axis=1)
    assert row["median"] == np.median(times)
    assert row["low"] <= row["median"] <= row["high"]
    assert row["algbw"] == 1001 / np.median(times)
    assert row["busbw"] == row["algbw"] * 2 * 3 / 4


def test_layout_is_the_documented_one_and_readable_by_h5py_alone(tmp_path):
    record(tmp_path / "r.h5", cases=1)
    with h5py.File(tmp_path / "r.h5") as file:
        assert dict(file.attrs) == {"format": FORMAT, "version": VERSION}
        launch = file["launch-0001"]
        assert (launch.attrs["label"], bool(launch.attrs["finished"])) == ("try", True)
        assert json.loads(launch["environment"][()])["variables"] == {"A": "b"}
        assert json.loads(launch["settings"][()]) == {"ci": 0.03}
        case = launch["visits/00001"]
        assert case["seconds"].shape == (10, 4)
        assert case.attrs.keys() == CASE.keys()


def test_delays_and_skipped_cases_are_kept(tmp_path):
    recorder = Recorder(tmp_path / "r.h5", {}, {})
    delays = np.zeros((10, 4))
    delays[:, 0] = 100
    recorder.add(CASE, SECONDS, delays)
    recorder.add({**CASE, "algorithm": "vendor_persistent", "skipped": "needs MPI 4"}, None)
    timed, skipped = read(tmp_path / "r.h5")
    np.testing.assert_array_equal(timed["delays"], delays)
    assert timed["median"] == np.median(SECONDS[:, 0])
    assert skipped["skipped"] == "needs MPI 4"
    assert "median" not in skipped


def test_visits_of_a_case_are_one_row(tmp_path):
    recorder = Recorder(tmp_path / "r.h5", {}, {})
    for i, wrong in enumerate((0, 2, 1)):
        visit = {**CASE, "pass": i, "wrong": wrong, "error": 0.1 * i, "repeatable": i != 1, "warmups": 10}
        recorder.add(visit, SECONDS[: 3 + i] + 100 * i)
        recorder.add({**CASE, "algorithm": "vendor"}, SECONDS)
    row, vendor = read(tmp_path / "r.h5")
    assert (row["visits"], row["repetitions"], row["wrong"], row["error"], row["warmups"]) == (3, 12, 2, 0.2, 30)
    assert (row["identical"], row["repeatable"]) == (True, False)
    assert row["visit"].tolist() == [0] * 3 + [1] * 4 + [2] * 5
    assert (row["low"], row["median"], row["high"]) == (8, 110, 212), "the medians of the visits"
    assert row["seconds"].shape == (12, 4)
    assert vendor["visits"] == 3


def test_launches_are_appended(tmp_path):
    for cases in (1, 2):
        record(tmp_path / "r.h5", cases)
    assert list(read_launches(tmp_path / "r.h5")) == ["launch-0001", "launch-0002"]
    assert len(read(tmp_path / "r.h5")) == 3
    assert len(read(tmp_path / "r.h5", "launch-0002")) == 2


def test_a_resumed_launch_goes_on_where_it_ended(tmp_path):
    first = Recorder(tmp_path / "r.h5", {"ranks": 4, "part": 1}, {"ci": 0.5}, "night")
    first.add(CASE, SECONDS)
    second = Recorder(tmp_path / "r.h5", {"ranks": 4, "part": 2}, {}, resume=first.launch)
    second.add(CASE, SECONDS)
    second.finish()
    (row,) = read(tmp_path / "r.h5")
    assert (row["visits"], row["label"]) == (2, "night")
    (facts,) = read_launches(tmp_path / "r.h5").values()
    assert (facts["finished"], facts["settings"], facts["environment"]["part"]) == (True, {"ci": 0.5}, 1)
    with h5py.File(tmp_path / "r.h5") as file:
        assert json.loads(file["launch-0001/environment-2"][()])["part"] == 2


def test_a_file_locked_by_another_process_is_an_error_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "LOCK_SECONDS", 0.2)
    record(tmp_path / "r.h5")
    with open(tmp_path / ".r.h5.lock") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(OSError, match=r"locked by another process for 0\.2 s; end that process, or .* --out"):
            Recorder(tmp_path / "r.h5", {}, {})
    Recorder(tmp_path / "r.h5", {}, {})


def test_a_file_system_that_is_almost_full_is_found_before_anything_is_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "SPARE_BYTES", 1 << 60)
    with pytest.raises(OSError, match=r"MiB are free, .* should be; make room, or .* --out"):
        Recorder(tmp_path / "r.h5", {}, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", ["flush", "finish"])
def test_visits_that_a_large_file_makes_wait_are_written_in_the_end(tmp_path, monkeypatch, end):
    monkeypatch.setattr(records, "CHEAP_SECONDS", 0.0)
    monkeypatch.setattr(records, "FLUSH_RATIO", 1e9)
    recorder = Recorder(tmp_path / "r.h5", {}, {})
    for i in range(5):
        recorder.add({**CASE, "bytes": 1000 + i}, SECONDS + i)
    assert len(read(tmp_path / "r.h5")) < 5
    getattr(recorder, end)()
    rows = read(tmp_path / "r.h5")
    assert [row["bytes"] for row in rows] == [1000, 1001, 1002, 1003, 1004]
    assert [row["seconds"][0, 0] for row in rows] == [1, 2, 3, 4, 5]


def test_launches_are_pooled_with_the_launch_as_the_unit(tmp_path):
    for factor in (3, 1, 2, 6, 5, 4):
        recorder = Recorder(tmp_path / "r.h5", {}, {})
        recorder.add(CASE, np.full((100, 4), float(factor)))
        recorder.finish()
    (row,) = pool(read(tmp_path / "r.h5"))
    assert (row["low"], row["median"], row["high"], row["visits"]) == (1, 3.5, 6, 6)
    assert row["algbw"] == 1000 / 3.5


def test_launches_that_append_at_the_same_time_lose_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=record, args=(tmp_path / "r.h5", 15)) for _ in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert len(read(tmp_path / "r.h5")) == 45


def test_a_file_of_another_kind_is_not_touched(tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["data"] = [1, 2, 3]
    (tmp_path / "text.h5").write_text("not HDF5")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=r"other\.h5.* not a record of this benchmark"):
        Recorder(tmp_path / "other.h5", {}, {})
    with pytest.raises(OSError, match=r"text\.h5"):
        Recorder(tmp_path / "text.h5", {}, {})
    assert all((tmp_path / name).read_bytes() == content for name, content in before.items())


def test_a_newer_layout_is_refused(tmp_path):
    record(tmp_path / "r.h5")
    with h5py.File(tmp_path / "r.h5", "a") as file:
        file.attrs["version"] = VERSION + 1
    with pytest.raises(ValueError, match=f"layout version {VERSION + 1}; this program knows up to {VERSION}"):
        read(tmp_path / "r.h5")


def _write_until_full(path):
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    recorder = Recorder(path, {}, {})
    for i in range(100):
        recorder.add({**CASE, "bytes": i + 1}, np.random.default_rng(recorder.visits).random((500, 4)))


def test_a_full_disk_raises_and_leaves_every_earlier_case(tmp_path):
    """The limit on a file's size stands for the disk: writing fails in the middle of a case."""
    program = f"""
        from tests.bench.test_records import _write_until_full
        try:
            _write_until_full({str(tmp_path / "r.h5")!r})
        except Exception as error:
            print(type(error).__name__)
    """
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert run.stdout.strip() in ("OSError", "RuntimeError"), run.stdout + run.stderr
    rows = read(tmp_path / "r.h5")
    assert len(rows) > 3
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".draft"] == []


@pytest.mark.parametrize("seed", range(8))
def test_a_killed_run_leaves_a_readable_file_with_all_finished_cases(tmp_path, seed):
    program = f"""
        import numpy as np
        from mpi_allreduce.bench import records
        from tests.bench.test_records import CASE, SECONDS
        records.CHEAP_SECONDS = float("inf")  # however slow the disk is at this moment, write each visit at once
        recorder = records.Recorder({str(tmp_path / "r.h5")!r}, {{}}, {{}})
        while True:
            recorder.add({{**CASE, "bytes": recorder.visits + 1}}, SECONDS)
            print(recorder.visits, flush=True)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    ) as writer:
        writer.stdout.readline()
        time.sleep(np.random.default_rng(seed).uniform(0, 0.3))
        os.kill(writer.pid, signal.SIGKILL)
        finished = 1 + len(writer.stdout.read().split())
    assert len(read(tmp_path / "r.h5")) >= finished
