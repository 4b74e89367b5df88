"""How much of the communication is hidden by computing, how much could be; and others' percentages.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Hidden", "hidden", "ideal_end"]


def ideal_end(ready: Sequence[float], seconds: Sequence[float]) -> float:
    """When the last bucket ends if each begins as soon as it is ready and the one before it has ended.

    Parameters
    ----------
    ready : sequence of float
        When each bucket's gradients are complete.
    seconds : sequence of float
        What the allreduce of each takes alone.
    """
    end = 0.0
    for at, takes in zip(ready, seconds, strict=True):
        end = max(at, end) + takes
    return end


@dataclass(frozen=True)
class Hidden:
    """One way of running, in seconds.

    Attributes
    ----------
    exposed : float
        What the iteration takes beyond computing.
    ideal_exposed : float
        What it would take at least.
    share : float
        Of the communication that is hidden.
    of_ideal : float
        What is hidden, as a fraction of what could be; 1 if nothing could.
    osu, imb : float
        Overlap in per cent as OSU's benchmarks and Intel's define it.
    """

    exposed: float
    ideal_exposed: float
    share: float
    of_ideal: float
    osu: float
    imb: float


def hidden(iteration: float, computing: float, communicating: float, ideal: float) -> Hidden:
    """Compare an iteration with its parts.

    Parameters
    ----------
    iteration : float
        Seconds of computing and communicating at once.
    computing, communicating : float
        Seconds of each alone.
    ideal : float
        See :func:`ideal_end`.
    """
    exposed = max(iteration - computing, 0.0)
    ideal_exposed = max(ideal - computing, 0.0)
    possible = communicating - ideal_exposed
    least = min(communicating, computing)
    return Hidden(
        exposed=exposed,
        ideal_exposed=ideal_exposed,
        share=1 - exposed / communicating if communicating else 0.0,
        of_ideal=(communicating - exposed) / possible if possible > 0 else 1.0,
        osu=max(0.0, 100 * (1 - exposed / communicating)) if communicating else 0.0,
        imb=100 * max(0.0, min(1.0, (communicating + computing - iteration) / least)) if least else 0.0,
    )
