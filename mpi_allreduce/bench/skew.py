"""Arrival patterns: ranks that come late on purpose, as they do in real programs."""

import numpy as np

__all__ = ["PATTERNS", "Skew"]


def _late(rng, size):
    delays = np.zeros(size)
    delays[rng.integers(size)] = 1
    return delays


def _linear(rng, size):
    return np.arange(size) / max(size - 1, 1)


def _random(rng, size):
    return rng.random(size)


PATTERNS = {"late": _late, "linear": _linear, "random": _random}


class Skew:
    """Delays of all ranks, repetition by repetition; every rank draws the same ones.

    Parameters
    ----------
    text : str
        ``none``, or PATTERN:FACTOR: ``late`` (one rank, another each time), ``linear`` (from rank 0 to the last) or
        ``random`` (uniform), the longest delay being FACTOR times the baseline; FACTOR is 1 if left out.
    size : int
        Ranks.
    seed : int

    Raises
    ------
    ValueError
        For an unknown pattern or a negative factor.
    """

    def __init__(self, text: str, size: int, seed: int):
        name, _, factor = text.partition(":")
        if name != "none" and name not in PATTERNS:
            raise ValueError(f"skew: expected none, or one of {', '.join(PATTERNS)} with :FACTOR, got {text!r}")
        try:
            self.factor = float(factor or 1)
        except ValueError:
            raise ValueError(f"skew: expected a number after the colon, got {text!r}") from None
        if self.factor < 0:
            raise ValueError(f"skew: the factor must not be negative, got {text!r}")
        self.active = name != "none"
        self._draw = PATTERNS.get(name)
        self._size = size
        self._rng = np.random.default_rng(seed)

    def delays(self, repetitions: int, baseline: float) -> np.ndarray:
        """Seconds by which each rank is late.

        Returns
        -------
        ndarray, shape (repetitions, ranks)
        """
        drawn = [self._draw(self._rng, self._size) for _ in range(repetitions)]
        return np.array(drawn) * self.factor * baseline
