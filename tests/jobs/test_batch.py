"""The shipped batch scripts on a real SLURM: they run, are interrupted, resumed, and end when a node dies."""

import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest

from mpi_allreduce.bench import read, read_launches
from mpi_allreduce.bench.command import COMMON_NAMES
from tests.jobs.lab import ROOT, Cluster, lab, needs_slurm
from tests.test_command_line import kill_all_that_name

pytestmark = needs_slurm
ROUNDS = 20
SHORT = ("--sizes", "4,1K", "--algorithms", "ring,vendor", "--passes", "6", "--max-seconds", "6")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    lab("down")
    lab("up", "--nodes", 4, "--rate", "1gbit")
    lab("slurm", "start")
    yield Cluster(tmp_path_factory.mktemp("cluster"))
    lab("down")


def cases(path):
    return {(row["algorithm"], row["bytes"]) for row in read(path)}


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_cpu_script_records_a_comparison_on_four_nodes(cluster, launcher):
    script = ("cpu.sbatch", "--sizes", "4,64K", "--max-seconds", 5)
    status, output = cluster.submit(*script, MA_NAME=launcher, MA_TEST_LAUNCHER=launcher)
    assert status == 0, output.read_text()
    assert "Every result is right" in output.read_text()
    path = cluster.folder / "results" / f"{launcher}.h5"
    assert cases(path) == {(a, s) for a in COMMON_NAMES for s in (4, 64 << 10)}
    (facts,) = read_launches(path).values()
    assert facts["environment"]["hosts"] == {f"h{i}": 1 for i in range(1, 5)}
    assert facts["environment"]["variables"]["SLURM_JOB_NUM_NODES"] == "4"


def test_scaling_script_runs_each_array_task_on_its_number_of_nodes(cluster):
    script = ("scaling.sbatch", "--sizes", "1K", "--algorithms", "ring,vendor", "--max-seconds", 2)
    status, output = cluster.submit(*script, sbatch=["--array=2,3"], MA_NAME="scaling")
    assert status == 0, output.read_text()
    for nodes in (2, 3):
        (facts,) = read_launches(cluster.folder / "results" / f"scaling-{nodes}-nodes.h5").values()
        assert len(facts["environment"]["hosts"]) == nodes


def test_vendor_sweep_proves_by_fingerprints_which_knobs_took_effect(cluster):
    status, output = cluster.submit("vendor_sweep.sbatch", "--sizes", "4K", "--max-seconds", 1, MA_NAME="sweep")
    text = output.read_text()
    assert status == 0, text
    rows = dict(re.findall(r"^(\w+) +((?:[a-z] +)+)", text, re.MULTILINE))
    assert {"default", "ring", "recursive_doubling", "reduce_scatter_allgather"} <= rows.keys()
    assert rows["ring"].split() != rows["default"].split(), "ring adds in another order than any other algorithm"


def test_launches_script_makes_separate_launches(cluster):
    script = ("launches.sbatch", "--sizes", "1K", "--algorithms", "ring,vendor", "--max-seconds", 1)
    status, output = cluster.submit(*script, MA_NAME="launches", MA_LAUNCHES="3")
    assert status == 0, output.read_text()
    facts = [read_launches(cluster.folder / "results" / f"launches-{i}.h5") for i in (1, 2, 3)]
    assert [launch["launch-0001"]["settings"]["seed"] for launch in facts] == [1, 2, 3]


def test_cancelled_jobs_leave_a_readable_record_that_the_same_command_completes(cluster):
    path = cluster.folder / "results" / "cancelled.h5"
    rng = random.Random(1)
    for _ in range(ROUNDS):
        number, _ = cluster.submit("cpu.sbatch", *SHORT, wait=False, MA_NAME="cancelled")
        time.sleep(rng.uniform(0.3, 2.5))
        cluster.call("scancel", number)
        cluster.wait_for(number)
        if path.exists():
            read(path)
    status, output = cluster.submit("cpu.sbatch", *SHORT, MA_NAME="cancelled")
    assert status == 0, output.read_text()
    assert cases(path) == {(a, s) for a in ("ring", "vendor") for s in (4, 1024)}
    (facts,) = read_launches(path).values()
    assert facts["finished"]
    assert min(row["visits"] for row in read(path)) >= 6


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_runs_that_are_killed_at_random_moments_are_readable_and_completed_by_resume(tmp_path, number):
    path = tmp_path / "r.h5"
    command = ["mpirun", "-n", "2", sys.executable, "-m", "mpi_allreduce", "bench"]
    rng = random.Random(int(number))
    for _ in range(ROUNDS):
        what = ["--resume", path] if path.exists() else [*SHORT, "--out", path]
        process = subprocess.Popen([*command, *what], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
        time.sleep(rng.uniform(0.3, 1.6))
        kill_all_that_name(path, number)
        process.wait(30)
        kill_all_that_name(path)
        if path.exists():
            assert all(row["wrong"] == 0 for row in read(path))
    if path.exists():
        done = subprocess.run([*command, "--resume", path], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert cases(path) == {(a, s) for a in ("ring", "vendor") for s in (4, 1024)}
    (facts,) = read_launches(path).values()
    assert facts["finished"]


def test_a_job_whose_node_dies_ends_soon_with_an_error_and_keeps_its_record(cluster):
    """The node's daemon and all its processes are killed, as by a power failure."""
    options = ("--sizes", "4K", "--algorithms", "ring,vendor", "--max-seconds", 60, "--ci", "0.001")
    number, output = cluster.submit("cpu.sbatch", *options, wait=False, MA_NAME="dying")
    path = cluster.folder / "results" / "dying.h5"
    deadline = time.monotonic() + 30
    while not (path.exists() and read(path)) and time.monotonic() < deadline:
        time.sleep(0.2)
    inside = subprocess.run(["ip", "netns", "pids", "malab-h3"], capture_output=True, text=True, check=True)
    for pid in inside.stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    cluster.wait_for(number, "RUNNING", seconds=50)
    cluster.call("scancel", number)  # SLURM would run it again when the node is back
    assert read(path)
    assert re.search(r"error|failed|abort", output.read_text(), re.IGNORECASE)
    lab("slurm", "stop")
    lab("slurm", "start")


def test_a_run_that_hangs_is_ended_by_the_watchdog_which_says_what_it_was_at(tmp_path):
    """One rank stops (SIGSTOP), as if its node had frozen."""
    path = tmp_path / "r.h5"
    command = ["mpirun", "-n", "3", sys.executable, "-m", "mpi_allreduce", "bench", *SHORT]
    process = subprocess.Popen(
        [*command, "--stall-seconds", "5", "--max-seconds", "60", "--ci", "0.001", "--out", path],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while not (path.exists() and read(path)) and time.monotonic() < deadline:
            time.sleep(0.2)
        processes = subprocess.run(["ps", "-eww", "-o", "pid=,args="], capture_output=True, text=True, check=True)
        ranks = [line for line in processes.stdout.splitlines() if str(path) in line and "mpirun" not in line]
        assert len(ranks) == 3
        os.kill(int(ranks[-1].split()[0]), signal.SIGSTOP)
        _, err = process.communicate(timeout=60)
    finally:
        kill_all_that_name(path)
    assert process.returncode != 0
    assert re.search(r"rank \d on \S+: nothing was finished for 5 s while at (ring|vendor) ", err)
    assert f"complete them with: bench --resume {path}" in err
    assert read(path)


def test_scripts_pass_shellcheck():
    import shutil

    if not shutil.which("shellcheck"):
        pytest.skip("shellcheck is not installed")
    scripts = [*ROOT.glob("jobs/*.sbatch"), *ROOT.glob("jobs/*.sh"), ROOT / "jobs" / "submit"]
    done = subprocess.run(["shellcheck", "-x", *scripts], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout
