"""A real SLURM on the emulated hosts: one controller, a slurmd on each host, and a munge of their own."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from .hosts import (
    HEAD,
    PREFIX,
    STATE,
    LabError,
    address,
    end_processes,
    environment,
    hosts,
    marked_processes,
    name_of,
    require_up,
    sh,
)


def start() -> None:
    """One controller on the head, one slurmd on each host, munge between them."""
    lab = require_up()
    if running():
        print(f"already running\nexport SLURM_CONF={STATE}/slurm/slurm.conf")
        return
    folder = STATE / "slurm"
    for name in ("state", "log", *(f"spool-{host}" for host in hosts(lab["nodes"]))):
        (folder / name).mkdir(parents=True, exist_ok=True)
    write_slurm_conf(folder, lab)
    start_munge(folder)
    head = ["unshare", "--uts", "sh", "-c", "hostname head; exec slurmctld -c"]
    subprocess.run(head, env=environment(), check=True)
    for host in hosts(lab["nodes"]):
        enter = ["ip", "netns", "exec", PREFIX + host, "unshare", "--uts", "sh", "-c"]
        subprocess.run([*enter, f"hostname {host}; exec slurmd -N {host}"], env=environment(), check=True)
    wait_until_idle()
    print(f"SLURM is up on {lab['nodes']} hosts\nexport SLURM_CONF={folder}/slurm.conf")


def write_slurm_conf(folder: Path, lab: dict) -> None:
    """All settings that differ from a real site's are about one machine playing many."""
    cores = max(lab["ppn"], 8)
    nodes = "".join(f"NodeName={h} NodeAddr={address(h)} CPUs={cores} State=UNKNOWN\n" for h in hosts(lab["nodes"]))
    (folder / "slurm.conf").write_text(
        f"""ClusterName=lab
SlurmctldHost=head({HEAD})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=pmi2
MailProg=/bin/true
ReturnToService=2
SlurmdTimeout=20
KillWait=15
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobRequeue=1
{nodes}PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
    )
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")


def start_munge(folder: Path) -> None:
    """A munge of the lab's own, with its own key."""
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    files = {"key-file": key, "socket": folder / "munge.socket", "pid-file": folder / "munge.pid"}
    files |= {"log-file": folder / "log/munge.log", "seed-file": folder / "munge.seed"}
    options = [f"--{name}={path}" for name, path in files.items()]
    subprocess.run(["munged", "--force", *options], env=environment(), check=True)


def wait_until_idle(seconds: float = 60) -> None:
    """Until all hosts have registered with the controller."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        command = ["sinfo", "--noheader", "--format=%T"]
        states = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False).stdout.split()
        if states and set(states) == {"idle"}:
            return
        time.sleep(0.3)
    raise LabError(f"slurm: hosts did not come up within {seconds:.0f} s; see {STATE}/slurm/log")


def stop() -> None:
    """End jobs and daemons; the hosts stay."""
    lab = require_up()
    pids = [pid for pid in marked_processes() if re.match(r"(slurm|munge|srun|sbatch)", name_of(pid))]
    for host in hosts(lab["nodes"]):
        pids += [int(pid) for pid in sh(f"ip netns pids {PREFIX}{host}", check=False).split()]
    end_processes(sorted(set(pids)))
    shutil.rmtree(STATE / "slurm", ignore_errors=True)


def running() -> bool:
    """Whether the lab's controller is alive."""
    pid_file = STATE / "slurm" / "slurmctld.pid"
    try:
        os.kill(int(pid_file.read_text()), 0)
    except (OSError, ValueError):
        return False
    return True
