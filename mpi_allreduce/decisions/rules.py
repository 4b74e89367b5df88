"""What to choose where nothing was measured: rules from the cost model and from what is generally true."""

from collections.abc import Callable

from ..algorithms import Algorithm, fitted, names
from .table import Choice, Situation

__all__ = ["built_in", "predicted"]

# A network of 10 Gbit/s with 15 us per message and rank, Python included; a core that adds 4 GB/s.
ALPHA, BETA, GAMMA = 15e-6, 8 / 10e9, 1 / 4e9
VENDOR_BYTES = 2 << 10  # between nodes the library's C is ahead of our Python up to here,
SHARED_BYTES = 8 << 10  # and inside a node up to here
HIERARCHY_BYTES = 16 << 10


def built_in(situation: Situation, nbytes: int, allowed: Callable[[str], bool]) -> Choice:
    """The choice without measurements.

    Parameters
    ----------
    situation : Situation
    nbytes : int
    allowed : callable
        Which names may be chosen; ``vendor`` always may.
    """
    wanted, why = _preferred(situation, nbytes)
    if not allowed(wanted):
        wanted, why = _cheapest(situation, nbytes, allowed)
    return Choice(wanted, f"built-in rule: {why}; mpi_allreduce tune makes a table of measurements", situation, nbytes)


def _preferred(situation: Situation, nbytes: int) -> tuple[str, str]:
    if situation.ranks == 1:
        return "ring", "one rank only copies"
    if situation.nodes == 1:
        if nbytes <= SHARED_BYTES and situation.native and not situation.crowded:
            return "vendor", f"inside a node the MPI library is ahead up to {SHARED_BYTES} bytes"
        return "shared", "inside a node memory is read directly"
    if nbytes <= VENDOR_BYTES and situation.native:
        return "vendor", f"between nodes the MPI library is ahead up to {VENDOR_BYTES} bytes"
    if situation.ranks > situation.nodes and nbytes > HIERARCHY_BYTES:
        return "hierarchical", "each byte leaves a node only once"
    return _cheapest(situation, nbytes, lambda name: True)


def _cheapest(situation: Situation, nbytes: int, allowed: Callable[[str], bool]) -> tuple[str, str]:
    times = {name: predicted(fitted(name, situation.ranks, nbytes), situation.ranks, nbytes) for name in names()}
    times = {name: seconds for name, seconds in times.items() if allowed(name)}
    if not times:
        return "vendor", "nothing else serves here"
    best = min(times, key=times.get)
    return best, f"the cost model gives it {times[best] * 1e6:.0f} us, the least"


def predicted(algorithm: Algorithm, ranks: int, nbytes: int) -> float:
    """Seconds by the cost model: rounds * alpha + sent * n * beta + reduced * n * gamma."""
    cost, symbols = algorithm.cost, algorithm.symbols
    rounds, sent, reduced = (float(f(ranks, **symbols)) for f in (cost.rounds, cost.sent, cost.reduced))
    return rounds * ALPHA + nbytes * (sent * BETA + reduced * GAMMA)
