"""What a rank does while its gradients travel: a stand-in for the backward pass, of a given length."""

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from time import perf_counter, sleep
from typing import Protocol

import numpy as np

__all__ = ["COMPUTING", "Compute", "Pacer", "Repeater", "adder", "multiplier"]


class Compute(Protocol):
    """``begin()``, then ``compute(layer, probe or None, how often)`` for each layer."""

    def begin(self) -> None: ...

    def __call__(self, layer: Hashable, probe: Callable[[], object] | None, probes: int) -> None: ...


class Pacer:
    """As if an accelerator computed: the core is free meanwhile, and what it does delays no layer.

    Parameters
    ----------
    seconds : mapping of layer to float
    """

    def __init__(self, seconds: Mapping[Hashable, float]):
        self.seconds = seconds
        self._end = 0.0

    def begin(self) -> None:
        """All layers are queued now, and follow each other at once."""
        self._end = perf_counter()

    def __call__(self, layer: Hashable, probe: Callable[[], object] | None, probes: int) -> None:
        """Wait until the layer is over, calling ``probe`` so often."""
        self._end += self.seconds[layer]
        pieces = max(probes, 1) if probe else 1
        for piece in range(pieces):
            left = (self._end - perf_counter()) / (pieces - piece)
            if left > 0:
                sleep(left)
            if probe:
                probe()


class Repeater:
    """A piece of work, as often as takes about so long on an undisturbed core.

    Parameters
    ----------
    work : callable
    seconds : mapping of layer to float
    """

    def __init__(self, work: Callable[[], object], seconds: Mapping[Hashable, float]):
        self._work = work
        each = min(self._once() for _ in range(20))
        self._times = {layer: max(round(value / each), 1) for layer, value in seconds.items()}

    def begin(self) -> None:
        """Nothing is queued: each layer begins when it is called."""

    def __call__(self, layer: Hashable, probe: Callable[[], object] | None, probes: int) -> None:
        """Work, calling ``probe`` about so often."""
        times = self._times[layer]
        every = max(times // max(probes, 1), 1)
        for i in range(times):
            self._work()
            if probe and (i + 1) % every == 0:
                probe()

    def _once(self) -> float:
        started = perf_counter()
        self._work()
        return perf_counter() - started


def multiplier(seconds: Mapping[Hashable, float]) -> Repeater:
    """Matrix products of 128 x 128, by as many threads as NumPy's library of linear algebra is allowed."""
    a, b = np.random.default_rng(0).standard_normal((2, 128, 128), np.float32)
    return Repeater(partial(np.matmul, a, b, out=np.empty_like(a)), seconds)


def adder(seconds: Mapping[Hashable, float]) -> Repeater:
    """Additions in the cache, by one thread."""
    a = np.ones(8192, np.float32)
    return Repeater(partial(np.add, a, a, out=np.empty_like(a)), seconds)


COMPUTING = {"paced": Pacer, "real": multiplier}
