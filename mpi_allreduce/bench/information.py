"""The sub-command ``info``: what is here, before anything is measured."""

import argparse
from collections import Counter

from ..library import library_name
from ..screen import console

__all__ = ["add_info"]


def add_info(commands) -> None:
    """Add ``info`` to the sub-commands of a parser."""
    parser = commands.add_parser(
        "info",
        help="print what is here: MPI library, ranks, CUDA devices, who moves messages (under mpirun or srun)",
        description="Print what MPI library, ranks and CUDA devices there are, and what they can do. Run it as: "
        "mpirun -n 4 python -m mpi_allreduce info",
    )
    parser.set_defaults(run=_info)


def _info(args: argparse.Namespace) -> int:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    lines = [*_about_mpi(comm), *_about_devices(comm), *_about_progress(comm)]
    if comm.rank == 0:
        screen = console(120)
        for name, text in lines:
            screen.print(f"{name:14} {text}", soft_wrap=True, highlight=False, markup=False)
    return 0


def _about_mpi(comm) -> list[tuple[str, str]]:
    from mpi4py import MPI

    hosts = Counter(comm.allgather(MPI.Get_processor_name()))
    levels = ("THREAD_SINGLE", "THREAD_FUNNELED", "THREAD_SERIALIZED", "THREAD_MULTIPLE")
    level = next(name for name in levels if getattr(MPI, name) == MPI.Query_thread())
    return [
        (
            "MPI",
            f"{library_name(MPI.Get_library_version())}, standard {'.'.join(map(str, MPI.Get_version()))}, {level}",
        ),
        ("ranks", f"{comm.size} on {len(hosts)} host{'s' * (len(hosts) > 1)}: {_some(hosts)}"),
    ]


def _some(hosts: Counter) -> str:
    shown = [f"{host} ({number})" for host, number in list(hosts.items())[:8]]
    return ", ".join(shown) + (f" and {len(hosts) - 8} more" if len(hosts) > 8 else "")


def _about_devices(comm) -> list[tuple[str, str]]:
    from ..runtime import claimed, cuda_awareness, device_limits, use_local_device

    try:
        device, problem = use_local_device(comm), ""
    except (ModuleNotFoundError, RuntimeError) as error:
        device, problem = None, str(error)
    found = comm.allgather((device.description if device else "", problem))
    said = str(claimed())
    if any(text for _, text in found):
        rank, text = next((rank, text) for rank, (_, text) in enumerate(found) if text)
        return [("CUDA devices", f"none on rank {rank}: {text}"), ("CUDA-aware", f"MPI {said}")]
    devices = Counter(name for name, _ in found)
    lines = [("CUDA devices", ", ".join(f"{name} ({number} ranks)" for name, number in devices.items()))]
    lines.append(("CUDA-aware", f"MPI {cuda_awareness(comm, device)}"))
    limits = device_limits(comm, device)
    return [*lines, ("limits", ", ".join(f"{name} {rate / 1e9:.1f} GB/s" for name, rate in limits.items()))]


def _about_progress(comm) -> list[tuple[str, str]]:
    from ..overlap.capability import probe_progress

    return [("progress", str(probe_progress(comm)))]
