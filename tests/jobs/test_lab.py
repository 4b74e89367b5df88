"""The emulated cluster: up, down without a trace, and every algorithm on it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.jobs.lab import LAB, lab, needs_lab

pytestmark = needs_lab


@pytest.fixture(autouse=True)
def no_lab_before_and_after():
    lab("down")
    yield
    lab("down")


def traces():
    """All that a lab could leave behind."""
    names_of = ["ip netns list", "ip -o link show", "ip -o -4 addr show", "findmnt -rn -o TARGET"]
    found = {command: subprocess.run(command.split(), capture_output=True, text=True).stdout for command in names_of}
    found["files"] = [path for path in ("/run/mpi_allreduce_lab", "/etc/netns") if os.path.exists(path)]
    ours = b"MPI_ALLREDUCE_LAB="
    found["processes"] = [p for p in os.listdir("/proc") if p.isdigit() and ours in environment_of(p)]
    return found


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


@pytest.fixture
def others():
    """A namespace and a bridge that are not the lab's."""
    subprocess.run("ip netns add other && ip link add other0 type bridge", shell=True, check=True)
    yield
    subprocess.run("ip netns delete other; ip link delete other0", shell=True, check=True)


def test_down_leaves_nothing_and_touches_nothing_else(others):
    before = traces()
    lab("up", "--nodes", 3, "--rate", "100mbit")
    sleeper = subprocess.Popen(["ip", "netns", "exec", "malab-h2", "sleep", "1000"])
    assert traces() != before
    lab("down")
    assert sleeper.wait(5) != 0
    assert traces() == before
    lab("down")
    assert traces() == before


def test_up_twice_is_safe_and_another_size_replaces_the_first():
    assert "up: 2 hosts" in lab("up", "--nodes", 2, "--rate", "1gbit").stdout
    assert "already up: 2 hosts" in lab("up", "--nodes", 2, "--rate", "1gbit").stdout
    assert "up: 3 hosts" in lab("up", "--nodes", 3, "--rate", "1gbit").stdout
    assert lab("status").stdout.count("processes") == 3


@pytest.mark.parametrize("delay", [0.05, 0.3, 0.6])
def test_down_cleans_up_after_a_crash(delay):
    before = traces()
    crashing = subprocess.Popen([LAB, "up", "--nodes", "12", "--rate", "100mbit"], stdout=subprocess.DEVNULL)
    time.sleep(delay)
    crashing.send_signal(signal.SIGKILL)
    crashing.wait()
    time.sleep(0.1)
    lab("down")
    assert traces() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["up", "--nodes", "33", "--rate", "1mbit"], "--nodes: expected 1 to 32, got 33"),
        (["up", "--nodes", "2", "--rate", "fast"], "--rate: expected something like 100mbit"),
        (["run", "--", "true"], "it is not up; say: lab up"),
        (["check"], "it is not up"),
        (["slurm", "start"], "it is not up"),
    ],
)
def test_mistakes_are_explained(arguments, message):
    done = lab(*arguments, check=False)
    assert done.returncode == 2
    assert message in done.stderr


def test_it_says_that_it_must_be_root_and_which_packages_are_missing():
    nobody = ["setpriv", "--reuid=65534", "--clear-groups", "env", "PYTHONDONTWRITEBYTECODE=1"]
    command = [*nobody, "python3", LAB, "status"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "must be root" in done.stderr
    lab("up", "--nodes", 2, "--rate", "1gbit")
    python = os.path.dirname(sys.executable)
    bare = subprocess.run(
        [sys.executable, LAB, "slurm", "start"], capture_output=True, text=True, env={"PATH": python}, check=False
    )
    assert "apt-get install" in bare.stderr
    assert "slurmctld" in bare.stderr


PROGRAM = """
import numpy as np
from mpi4py import MPI
import mpi_allreduce as ma
comm = MPI.COMM_WORLD
node = comm.Split_type(MPI.COMM_TYPE_SHARED)
right = all(
    (ma.allreduce(comm, np.arange(count) + comm.rank, algorithm=name)
     == np.arange(count) * comm.size + comm.size * (comm.size - 1) // 2).all()
    for name in ma.algorithm_names() if name != "shared" for count in (1, 1000, 20011)
)
facts = comm.gather((right, MPI.Get_processor_name(), node.size))
if comm.rank == 0:
    hosts = {host for _, host, _ in facts}
    print(len(facts), len(hosts), {size for _, _, size in facts}, all(right for right, _, _ in facts))
"""


@pytest.mark.parametrize("nodes", [3, 4, 6])
def test_every_algorithm_is_right_on_hosts_that_mpi_tells_apart(nodes):
    lab("up", "--nodes", nodes, "--rate", "200mbit")
    for ppn in (1, 2):
        done = lab("run", "-n", nodes * ppn, "--ppn", ppn, "--", sys.executable, "-c", PROGRAM)
        assert done.stdout.strip() == f"{nodes * ppn} {nodes} {{{ppn}}} True", done.stdout + done.stderr


def test_check_measures_links_at_their_rate_and_finds_one_that_is_slower():
    lab("up", "--nodes", 3, "--rate", "100mbit")
    done = lab("check")
    assert "3 links as fast as they should be" in done.stdout
    assert "line-rate bound of an allreduce of 1 MiB on 3 hosts: 111.85 ms" in done.stdout
    slower = "tc qdisc replace dev malab-h2 root tbf rate 50mbit burst 64kb latency 20ms"
    subprocess.run(slower.split(), check=True)
    done = lab("check", check=False)
    assert done.returncode != 0
    assert "2 links as fast as they should be (94% of the rate), 1 not" in done.stdout
