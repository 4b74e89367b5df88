"""What the tests of jobs/ share: the lab on 4 hosts, a site file for it, and when all that cannot be had."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAB = ROOT / "jobs" / "lab"
CONF = Path("/run/mpi_allreduce_lab/slurm/slurm.conf")


def lab(*arguments, check=True, timeout=120, **options):
    """Run jobs/lab."""
    command = [LAB, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, **options)
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def why_not(*programs):
    """Why the lab cannot run here; None if it can."""
    if os.geteuid() != 0:
        return "the lab makes network namespaces, for which it must be root"
    missing = [program for program in ("ip", "tc", "unshare", "mpirun", *programs) if not shutil.which(program)]
    return f"programs are missing: {', '.join(missing)}" if missing else None


def is_mpich():
    """Whether the mpirun on PATH is MPICH's."""
    text = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout
    return "HYDRA" in text and "Intel" not in text


needs_lab = pytest.mark.skipif(bool(why_not()), reason=str(why_not()))
WHY_NO_SLURM = why_not("slurmctld", "slurmd", "sbatch", "munged") or (
    None if is_mpich() else "the lab's SLURM is tested with MPICH (srun --mpi=pmi2)"
)
needs_slurm = pytest.mark.skipif(bool(WHY_NO_SLURM), reason=str(WHY_NO_SLURM))

SITE = """
MA_ACCOUNT= MA_PARTITION=lab MA_LAUNCHER=srun MA_VENDOR=mpich MA_RESULTS={results} MA_REQUEUE=no
MA_SRUN_OPTIONS=(--mpi=pmi2) MA_MPIRUN_OPTIONS=()
site_environment() {{
    export PATH={path} MPIR_CVAR_CH4_NETMOD=ofi FI_PROVIDER=tcp FI_TCP_IFACE=eth0
}}
site_gpu_environment() {{ :; }}
"""


class Cluster:
    """The emulated SLURM, as a user of jobs/ sees it."""

    def __init__(self, folder):
        self.folder = folder
        site = folder / "site.sh"
        site.write_text(SITE.format(results=folder / "results", path=os.environ["PATH"]))
        self.environment = {**os.environ, "SLURM_CONF": str(CONF), "MA_SITE": str(site)}

    def submit(self, script, *options, wait=True, nodes=4, sbatch=(), timeout=150, **variables):
        """Submit one of jobs/*.sbatch; (status, output file) or the job's number."""
        output = self.folder / f"{time.monotonic_ns()}.out"
        command = [ROOT / "jobs" / "submit", "--parsable", f"--nodes={nodes}", "--ntasks-per-node=1", *sbatch]
        command += [f"--output={output}", *(["--wait"] if wait else []), f"jobs/{script}", *map(str, options)]
        environment = {**self.environment, **variables}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=timeout, check=False, cwd=ROOT
        )
        number = done.stdout.strip().split(";")[0]
        assert number.isdigit(), done.stdout + done.stderr
        return (done.returncode, output) if wait else (number, output)

    def call(self, *command):
        """A SLURM command's output."""
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=60
        ).stdout

    def wait_for(self, number, states="PENDING,RUNNING", seconds=60):
        """Until a job is in none of these states."""
        deadline = time.monotonic() + seconds
        while self.call("squeue", "-h", "-t", states, "-j", number).strip():
            assert time.monotonic() < deadline, f"job {number} does not end: {self.call('squeue')}"
            time.sleep(0.2)
