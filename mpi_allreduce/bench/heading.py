"""What was measured and where, in one line: the same on the screen, in records shown later, and above figures."""

from ..library import library_name

__all__ = ["heading"]


def heading(environment: dict, settings: dict) -> str:
    """One line about a launch, from the ``environment`` and the ``settings`` of its record."""
    hosts, cores = environment["hosts"], environment["cores_on_host"]
    crowded = max(hosts.values()) > cores
    return (
        f"{environment['ranks']} ranks on {len(hosts)} host{'s' * (len(hosts) > 1)} with {cores} cores"
        f"{' (fewer than ranks: an overloaded machine)' if crowded else ''}, {environment['cpu']}, "
        f"{library_name(environment['mpi_library'])}; {settings['op']} of {settings['dtype']}, "
        f"{'in place' if settings['in_place'] else 'out of place'}, {settings['mode']}, "
        f"{settings['buffers'] or 'rotating'} buffers, "
        f"skew {settings['skew']}, data {settings['data']}{_device(environment)}"
    )


def _device(environment: dict) -> str:
    """Where buffers were, if on a device."""
    return "; {device}, MPI {cuda_aware}".format(**environment) if environment.get("device") else ""
