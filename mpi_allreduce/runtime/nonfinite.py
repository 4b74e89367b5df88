"""What happens where a contribution is infinite or NaN, or too large for the codec: the same on all ranks."""

from collections.abc import Callable

import numpy as np

from ..codecs import Codec, Flags

__all__ = ["POLICIES", "NonFiniteError"]


class NonFiniteError(ArithmeticError):
    """A contribution to a compressed allreduce was infinite or NaN, or overflowed; raised on all ranks alike."""


def refuse(receive: np.ndarray, flags: Flags, codec: Codec) -> None:
    """Raise; ``receive`` holds what came out."""
    if flags & Flags.NONFINITE:
        what = "the contribution of some rank holds infinity or NaN"
    else:
        what = (
            f"numbers are too large for {codec.name}, whose largest is {codec.largest:.6g}; fp16:predivide=N divides "
            "by N before, bf16 has float32's range"
        )
    raise NonFiniteError(f'{what}; nan="pass" lets such results through, nan="skip" makes them zero')


def let_through(receive: np.ndarray, flags: Flags, codec: Codec) -> None:
    """Leave the result as it is."""


def skip(receive: np.ndarray, flags: Flags, codec: Codec) -> None:
    """Make the whole result zero, so that a step along it changes nothing."""
    receive[:] = 0


POLICIES: dict[str, Callable[[np.ndarray, Flags, Codec], None]] = {"raise": refuse, "pass": let_through, "skip": skip}
