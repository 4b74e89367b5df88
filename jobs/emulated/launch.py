"""MPI programs on the emulated hosts: what each library's launcher has to be told."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from .hosts import BRIDGE, STATE, SUBNET, LabError, address, bits_per_second, environment, hosts, require_up


def run(command: list[str], ranks: int | None, ppn: int | None) -> int:
    """Launch a command on the hosts with whatever mpirun is on PATH."""
    lab = require_up()
    if not command:
        raise LabError("run: give a command after --")
    ppn = ppn or lab["ppn"]
    ranks = ranks or lab["nodes"] * ppn
    if not 1 <= ranks <= lab["nodes"] * ppn:
        raise LabError(f"run: {ranks} ranks do not fit on {lab['nodes']} hosts with --ppn {ppn}")
    launcher = LAUNCHERS[library()](ranks, ppn, lab["nodes"])
    return in_lab([*launcher, *command]).wait()


def library() -> str:
    """Which MPI library's mpirun is on PATH."""
    if not shutil.which("mpirun"):
        raise LabError("run: there is no mpirun on PATH; activate the environment that has the MPI library")
    text = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout
    for name, words in (("intel", "Intel(R) MPI"), ("openmpi", "Open MPI"), ("mpich", "HYDRA")):
        if words in text:
            return name
    raise LabError(f"run: cannot tell the MPI library of {shutil.which('mpirun')}: {text[:80]!r}")


def hydra(ranks: int, ppn: int, nodes: int) -> list[str]:
    """MPICH: libfabric's tcp provider between hosts (UCX opens too many connections at 32 hosts)."""
    os.environ |= {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}
    files = ["-launcher", "rsh", "-launcher-exec", f"{STATE}/rsh", "-f", hostfile(ppn, nodes, "{address}:{ppn}")]
    return ["mpirun", *files, "-iface", BRIDGE, "-n", str(ranks)]


def intel(ranks: int, ppn: int, nodes: int) -> list[str]:
    """Intel MPI: the same; its ranks must sleep, not spin, and not be bound, as all hosts are the same cores."""
    os.environ |= {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0", "I_MPI_FABRICS": "shm:ofi", "I_MPI_PIN": "off"}
    os.environ |= {"I_MPI_THREAD_YIELD": "3", "I_MPI_SPIN_COUNT": "1", "I_MPI_THREAD_SLEEP": "0"}
    files = ["-bootstrap", "rsh", "-bootstrap-exec", f"{STATE}/rsh", "-f", hostfile(ppn, nodes, "{address}")]
    return ["mpirun", *files, "-iface", BRIDGE, "-ppn", str(ppn), "-n", str(ranks)]


def openmpi(ranks: int, ppn: int, nodes: int) -> list[str]:
    """Open MPI: its own TCP transport on the emulated links.

    Its ranks cannot sleep, only yield.  So with more hosts than cores every handshake before a message waits for its
    turn on a core, which costs up to 15 % at 1 MiB and is no property of a cluster: messages up to 4 MiB go without.
    """
    eager = str(4 << 20)
    options = {
        "--prtemca": [
            ("plm_ssh_agent", f"{STATE}/rsh"), ("plm_ssh_no_tree_spawn", "1"),
            ("prte_if_include", f"{SUBNET}.0/24"),
        ],
        "--mca": [
            ("btl", "tcp,self,sm"), ("pml", "ob1"), ("btl_tcp_if_include", "eth0"), ("mpi_yield_when_idle", "1"),
            ("btl_tcp_eager_limit", eager), ("btl_tcp_rndv_eager_limit", eager), ("btl_tcp_max_send_size", eager),
        ],
    }  # fmt: skip
    files = ["--hostfile", hostfile(ppn, nodes, "{host} slots={ppn}"), "--bind-to", "none"]
    settings = [word for flag, pairs in options.items() for pair in pairs for word in (flag, *pair)]
    return ["mpirun", "--allow-run-as-root", *settings, *files, "-n", str(ranks)]


LAUNCHERS = {"mpich": hydra, "intel": intel, "openmpi": openmpi}


def hostfile(ppn: int, nodes: int, line: str) -> str:
    """A file with a line for each host."""
    path = STATE / "hostfile"
    path.write_text("".join(line.format(host=h, address=address(h), ppn=ppn) + "\n" for h in hosts(nodes)))
    return str(path)


def in_lab(command: list[str], **options) -> subprocess.Popen:
    """A process on the head that knows the hosts by name, and that `down` will find."""
    mount = f"mount --bind {STATE}/hosts /etc/hosts && exec " + shlex.join(command)
    return subprocess.Popen(["unshare", "--mount", "sh", "-c", mount], env=environment(), **options)


def check() -> int:
    """Measure every link by MPI messages, and say what an allreduce can reach at best."""
    lab = require_up()
    program = Path(__file__).resolve().with_name("linkcheck.py")
    rate = bits_per_second(lab["rate"])
    launcher = LAUNCHERS[library()](lab["nodes"], 1, lab["nodes"])
    return in_lab([*launcher, "python3", str(program), str(rate)]).wait()
