"""Hosts out of network namespaces, each with one rate-limited link to a bridge; and how all of it is removed."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

STATE = Path("/run/mpi_allreduce_lab")
NAMESPACES = Path("/etc/netns")
PREFIX = "malab-"  # of namespaces
BRIDGE = "malab0"
SUBNET = "10.213.97"
HEAD = f"{SUBNET}.254"
MARK = "MPI_ALLREDUCE_LAB"  # in the environment of all that the lab starts
MOST_NODES = 32
PACKAGES = {
    "ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "sysctl": "procps",
    "slurmctld": "slurmctld", "slurmd": "slurmd", "scontrol": "slurm-client", "munged": "munge",
}  # fmt: skip
# What may pass a link at once after a pause; so messages up to about this size seem faster than the rate.  Small, as
# in trees each link pauses in every other round; but some packets, and what a core can hand over at high rates.
BURST_SECONDS = 0.0005
BURST_BYTES = (6 << 10, 64 << 10)
# What TCP does in a lossy wide-area network and no cluster's fabric does: shrink a connection's window once it was
# idle, so that algorithms that come back to a peer (circulant at 4 MiB and more) lose up to a third; and pace by a
# model of the path, which two-way traffic on one link upsets.  It is set in the hosts' own namespaces only.
TCP = {"tcp_slow_start_after_idle": "0", "tcp_congestion_control": "reno"}


class LabError(Exception):
    """Something that the user can mend."""


def up(nodes: int, rate: str, ppn: int) -> None:
    """Make the hosts; what is left of an earlier lab goes first, unless it is just what is asked for."""
    if not 1 <= nodes <= MOST_NODES:
        raise LabError(f"--nodes: expected 1 to {MOST_NODES}, got {nodes}")
    if ppn < 1:
        raise LabError(f"--ppn: expected at least 1, got {ppn}")
    bits_per_second(rate)
    wanted = {"nodes": nodes, "rate": rate, "ppn": ppn}
    if load() == wanted and all(host in namespaces() for host in hosts(nodes)):
        print(f"already up: {describe(wanted)}")
        return
    down()
    STATE.mkdir(parents=True)
    save(wanted)  # first, so that `down` knows of a half-made lab
    try:
        make_hosts(wanted)
    except BaseException:
        down()
        raise
    print(f"up: {describe(wanted)}")


def make_hosts(lab: dict) -> None:
    """Bridge, namespaces, links with token buckets at both ends, host names, launch script."""
    names = hosts(lab["nodes"])
    table = "".join(f"{address(host)} {host}\n" for host in names)
    (STATE / "hosts").write_text(f"127.0.0.1 localhost\n{HEAD} head\n{table}")
    sh(f"ip link add {BRIDGE} type bridge")
    sh(f"ip addr add {HEAD}/24 dev {BRIDGE}")
    sh(f"ip link set {BRIDGE} up")
    fewest, most = BURST_BYTES
    burst = min(max(round(bits_per_second(lab["rate"]) / 8 * BURST_SECONDS), fewest), most)
    bucket = f"root tbf rate {lab['rate']} burst {burst} limit 16mb"  # drops nothing, like a cluster's fabric
    for host in names:
        space, link = PREFIX + host, f"malab-{host}"
        (NAMESPACES / space).mkdir(parents=True, exist_ok=True)
        shutil.copy(STATE / "hosts", NAMESPACES / space / "hosts")
        sh(f"ip netns add {space}")
        sh(f"ip link add {link} type veth peer name eth0 netns {space}")
        sh(f"ip link set {link} master {BRIDGE} up")
        sh(f"ip -n {space} addr add {address(host)}/24 dev eth0")
        sh(f"ip -n {space} link set lo up")
        sh(f"ip -n {space} link set eth0 up")
        sh(f"tc qdisc add dev {link} {bucket}")
        sh(f"tc -n {space} qdisc add dev eth0 {bucket}")
        for name, value in TCP.items():
            sh(f"ip netns exec {space} sysctl -qw net.ipv4.{name}={value}")
    script = STATE / "rsh"
    # Launchers call it like rsh: HOST COMMAND...  A UTS namespace gives the host its own name, by which MPI libraries
    # tell nodes apart; "ip netns exec" puts the host table in place.
    script.write_text(
        "#!/bin/sh\n"
        'while [ "${1#-}" != "$1" ]; do shift; done\n'
        f"host=$(awk -v h=\"$1\" '$1 == h || $2 == h {{ print $2 }}' {STATE}/hosts)\n"
        "shift\n"
        f'exec ip netns exec "{PREFIX}$host" unshare --uts sh -c "hostname $host; $*"\n'
    )
    script.chmod(0o755)


def down() -> None:
    """Remove everything; also what a crashed lab without state has left."""
    left = [int(pid) for pid in marked_processes()]
    for space in namespaces(prefixed=True):
        left += [int(pid) for pid in sh(f"ip netns pids {space}", check=False).split()]
    end_processes(sorted(set(left)))
    for space in namespaces(prefixed=True):
        sh(f"ip netns delete {space}", check=False)
    for line in sh("ip -o link show", check=False).splitlines():
        name = line.split(":")[1].strip().split("@")[0]
        if name == BRIDGE or name.startswith("malab-"):
            sh(f"ip link delete {name}", check=False)
    for folder in NAMESPACES.glob(f"{PREFIX}*"):
        shutil.rmtree(folder)
    if NAMESPACES.exists() and not any(NAMESPACES.iterdir()):
        NAMESPACES.rmdir()
    shutil.rmtree(STATE, ignore_errors=True)


def hosts(nodes: int) -> list[str]:
    """h1, h2, ..."""
    return [f"h{i}" for i in range(1, nodes + 1)]


def address(host: str) -> str:
    """The address of a host."""
    return f"{SUBNET}.{host[1:]}"


def namespaces(prefixed: bool = False) -> list[str]:
    """The lab's namespaces that exist, as host names or (prefixed) as they are called."""
    found = [line.split()[0] for line in sh("ip netns list", check=False).splitlines() if line.strip()]
    return [name if prefixed else name.removeprefix(PREFIX) for name in found if name.startswith(PREFIX)]


def describe(lab: dict) -> str:
    """One line."""
    return f"{lab['nodes']} hosts with links of {lab['rate']} both ways, {lab['ppn']} ranks per host"


def bits_per_second(rate: str) -> float:
    """``100mbit`` -> 1e8."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)bit", rate)
    if not match or not float(match[1]):
        raise LabError(f"--rate: expected something like 100mbit or 1gbit, got {rate!r}")
    return float(match[1]) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[match[2]]


def save(lab: dict) -> None:
    """Remember what was asked for."""
    (STATE / "lab.json").write_text(json.dumps(lab))


def load() -> dict | None:
    """What is up, or None."""
    try:
        return json.loads((STATE / "lab.json").read_text())
    except (OSError, ValueError):
        return None


def require_up() -> dict:
    """What is up; an error if nothing is."""
    lab = load()
    if not lab or set(hosts(lab["nodes"])) - set(namespaces()):
        raise LabError("it is not up; say: lab up --nodes N --rate 100mbit")
    return lab


def environment() -> dict[str, str]:
    """For processes of the lab: the mark by which `down` finds them, and SLURM's configuration if there is one."""
    conf = STATE / "slurm" / "slurm.conf"
    return {**os.environ, MARK: str(STATE), **({"SLURM_CONF": str(conf)} if conf.exists() else {})}


def need(*programs: str) -> None:
    """Say which package a missing program comes with."""
    missing = {PACKAGES[program] for program in programs if not shutil.which(program)}
    if missing:
        raise LabError(f"programs are missing; say: apt-get install {' '.join(sorted(missing))}")


def marked_processes() -> list[int]:
    """Processes that the lab started, with all their offspring; not this one and its ancestors."""
    mark, mine, found = f"{MARK}={STATE}".encode(), set(), []
    pid = os.getpid()
    while pid > 1:
        mine.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in mine:
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark in variables:
                found.append(int(entry.name))
    return found


def name_of(pid: int) -> str:
    """The program's name."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def end_processes(pids: list[int], patience: float = 3.0) -> None:
    """Ask, wait, then kill."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and any(alive(pid) for pid in pids):
            time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead but not yet collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def sh(command: str, check: bool = True) -> str:
    """Run a command without a shell; its standard output."""
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise LabError(f"{command}: {done.stderr.strip()}")
    return done.stdout
