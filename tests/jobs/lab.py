"""What the tests of jobs/ share: the lab on 4 hosts, a site file for it, and when all that cannot be had."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from jobs.emulated.launch import library

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


def why_not_launched():
    """Why the lab's SLURM cannot start this MPI library; None if it can."""
    return "Debian's SLURM (PMIx 4) does not start Open MPI 5 (PMIx 5) here" if library() == "openmpi" else None


needs_lab = pytest.mark.skipif(bool(why_not()), reason=str(why_not()))
WHY_NO_SLURM = why_not("slurmctld", "slurmd", "sbatch", "munged") or why_not_launched()
needs_slurm = pytest.mark.skipif(bool(WHY_NO_SLURM), reason=str(WHY_NO_SLURM))

SITE = """
MA_ACCOUNT= MA_PARTITION=lab MA_LAUNCHER=${{MA_TEST_LAUNCHER:-srun}} MA_VENDOR={vendor} MA_RESULTS={results}
MA_REQUEUE=no MA_SRUN_OPTIONS=({srun}) MA_MPIRUN_OPTIONS=({mpirun})
site_environment() {{
    export PATH={path} {variables}
}}
site_gpu_environment() {{ :; }}
"""
HYDRA = {"mpirun": "-iface eth0"}
TCP = "FI_PROVIDER=tcp FI_TCP_IFACE=eth0"
SITES = {  # what jobs/site.sh would say on a cluster with each library
    "mpich": {**HYDRA, "srun": "--mpi=pmi2", "variables": f"MPIR_CVAR_CH4_NETMOD=ofi {TCP}"},
    "intel": {
        **HYDRA,
        "srun": "--mpi=pmi2",
        "variables": f"I_MPI_PMI_LIBRARY=/usr/lib/x86_64-linux-gnu/libpmi2.so.0 I_MPI_PIN=off {TCP}",
    },
}


class Cluster:
    """The emulated SLURM, as a user of jobs/ sees it."""

    def __init__(self, folder):
        self.folder = folder
        site = folder / "site.sh"
        vendor = library()
        site.write_text(
            SITE.format(vendor=vendor, results=folder / "results", path=os.environ["PATH"], **SITES[vendor])
        )
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
