"""The command line as users run it: real processes, real mpirun."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from mpi_allreduce import algorithm_names
from mpi_allreduce.algorithms import names
from mpi_allreduce.bench import read, read_launches
from mpi_allreduce.simulate.command import parse_ranks

needs_mpirun = pytest.mark.skipif(not shutil.which("mpirun"), reason="there is no mpirun on PATH")


def kill_all_that_name(path, number=signal.SIGKILL):
    """The launcher and all ranks, whichever sessions they are in."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if str(path).encode() in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), number)


def start(*arguments, ranks=None, program=("-m", "mpi_allreduce"), **options):
    launcher = ["mpirun", "-n", str(ranks)] if ranks else []
    command = [*launcher, sys.executable, *program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def run(*arguments, timeout=100, **options):
    process = start(*arguments, **options)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        kill_all_that_name(arguments[-1])
        raise
    return process.returncode, out, err


WITHOUT_MPI = (
    "-c",
    "import sys; sys.modules['mpi4py.MPI'] = None\n"
    "from mpi_allreduce.__main__ import main\n"
    "sys.exit(main(sys.argv[1:]))",
)


def test_verify_proves_all_algorithms_without_mpi():
    status, out, err = run("verify", "--ranks", "1:8,13", program=WITHOUT_MPI)
    assert (status, err) == (0, "")
    for name in names():
        assert f"{name} " in out
    assert f"{9 * len(names())} proved, 0 failed." in out


@pytest.mark.parametrize("command", [["--help"], ["bench", "--help"], ["show", "--help"], ["--version"]])
def test_help_needs_no_mpi(command):
    status, out, err = run(*command, program=WITHOUT_MPI)
    assert (status, err) == (0, "")
    assert "mpi_allreduce" in out


def test_ranks_are_numbers_and_ranges():
    assert parse_ranks("1:4,8") == [1, 2, 3, 4, 8]
    for bad in ("", "x", "0", "4:", "3:1"):
        with pytest.raises(ValueError, match="ranks: "):
            parse_ranks(bad)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["verify", "--algorithms", "rings"], "verify: error: algorithm: unknown name 'rings'"),
        (["verify", "--ranks", "zero"], "verify: error: ranks: expected numbers"),
        (["show", "nowhere.h5"], "show: error: .*nowhere.h5"),
        (["bench", "--sizes", "large"], "argument --sizes: size: expected a number of bytes"),
        (["bench", "--dtype", "float99"], "argument --dtype: dtype: 'float99' is not a numeric type"),
        (["bench", "--algorithms", "rings"], "bench: error: algorithm: unknown name 'rings'.*Did you mean 'ring'"),
        (["dance"], "invalid choice: 'dance'"),
    ],
)
def test_bad_usage_is_said_in_a_line_with_status_2(arguments, message):
    import re

    status, out, err = run(*arguments)
    assert status == 2
    assert re.search(message, err)
    assert "Traceback" not in out + err


@needs_mpirun
def test_bad_usage_under_mpirun_is_said_once():
    status, out, err = run("bench", "--algorithms", "rings", ranks=3)
    assert status != 0
    assert (out + err).count("unknown name 'rings'") == 1
    status, out, err = run("bench", "--sizes", "large", ranks=3)
    assert status != 0
    assert (out + err).count("expected a number of bytes") == 1


@needs_mpirun
def test_bench_and_show_print_the_same_table(tmp_path):
    status, out, err = run(
        "bench", "--algorithms", "all,auto,knomial_tree:2,reproducible", "--sizes", "4,1K", "--max-seconds", "2",
        "--out", tmp_path / "r.h5", "--label", "night", ranks=2
    )  # fmt: skip
    assert status == 0, out + err
    rows = read(tmp_path / "r.h5")
    assert len(rows) == 2 * (len(algorithm_names()) + 3)
    chosen = {row["algorithm"]: (row["chosen"], row["reason"]) for row in rows}
    assert chosen["auto"][0] in algorithm_names()
    assert "built-in rule" in chosen["auto"][1]
    assert chosen["ring"] == ("ring", "")
    status, shown, err = run("show", tmp_path / "r.h5", program=WITHOUT_MPI)
    assert status == 0, err
    assert "launch-0001 night" in shown
    table = [line for line in out.splitlines() if "recursive_doubling" in line and ".." in line]
    assert len(table) == 2
    assert all(line in shown.splitlines() for line in table)


@needs_mpirun
def test_an_exception_on_one_rank_aborts_the_job_with_the_traceback_and_the_rank(tmp_path):
    """Rank 1 fails in the middle of a benchmark while the others wait for it."""
    program = (
        "-c",
        "import sys\n"
        "from mpi4py import MPI\n"
        "from mpi_allreduce.bench import timing\n"
        "from mpi_allreduce.__main__ import main\n"
        "class Failing(timing.Timer):\n"
        "    def measure(self, *arguments):\n"
        "        if self.comm.rank == 1: raise ZeroDivisionError('on purpose')\n"
        "        return super().measure(*arguments)\n"
        "import mpi_allreduce.bench.run as run\n"
        "run.Timer = Failing\n"
        "sys.exit(main(sys.argv[1:]))",
    )
    started = time.monotonic()
    status, out, err = run("bench", "--sizes", "4", "--out", tmp_path / "r.h5", ranks=3, program=program)
    assert status != 0
    assert time.monotonic() - started < 60
    assert "rank 1 on " in err
    assert "ZeroDivisionError: on purpose" in err
    assert "Traceback" in err
    assert "rank 0 on " not in out + err


@needs_mpirun
@pytest.mark.parametrize("moment", [0.0, 0.7, 1.9])
def test_a_launch_killed_at_any_moment_leaves_its_finished_cases(tmp_path, moment):
    path = tmp_path / "r.h5"
    process = start("bench", "--max-seconds", "30", "--probe-seconds", "0", "--out", path, ranks=2)
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(moment)
    kill_all_that_name(path)
    process.communicate()
    (facts,) = read_launches(path).values()
    assert not facts["finished"]
    rows = read(path)
    assert all(row.get("wrong", 0) == 0 for row in rows)
    if moment > 0.5:
        assert rows
