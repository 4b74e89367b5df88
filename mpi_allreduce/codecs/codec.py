"""What a codec is: a way to write up to ``CHUNK`` numbers in fewer bytes, and to read them again.

A codec never sees more than one **chunk**, a piece of a block that fits into the cache, and always as float32; cutting
blocks into chunks, other dtypes, flags and headers are the work of :mod:`.packet`.  Encoding is a function of the
numbers (and of a key where chance plays a part), so that ranks that hold the same bits write the same bytes.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

__all__ = ["ALIGNMENT", "CHUNK", "Bound", "Codec", "Coder", "Glance", "padded"]

CHUNK = 1 << 15  # elements: their temporaries stay in the cache, and an index of one of them fits 16 bits
ALIGNMENT = 8  # bytes: every chunk on the wire begins at a multiple


class Bound(NamedTuple):
    """How far ``decode(encode(x))`` may be from x, whatever the finite numbers x that do not overflow.

    The L2 norm of the error of n elements is at most ``relative * norm(x) + absolute * sqrt(n)``.

    Attributes
    ----------
    relative : float
        inf if there is no bound.
    absolute : float
        For each element.
    """

    relative: float
    absolute: float = 0.0


class Glance(NamedTuple):
    """What is known of a chunk before it is encoded.

    Attributes
    ----------
    peak : float
        The largest magnitude in the chunk; inf or NaN if not all numbers are finite.
    whole : float
        The largest magnitude in this rank's whole contribution, for codecs that ask for it.
    key : int
        Differs from run to run and from chunk to chunk, but not from rank to rank.
    """

    peak: float
    whole: float
    key: int


class Coder(ABC):
    """A codec with its scratch memory, for chunks of up to ``CHUNK`` elements."""

    @abstractmethod
    def encode(self, values: np.ndarray, wire: np.ndarray, glance: Glance) -> int:
        """Write ``values`` (float32) to ``wire`` (uint8); returns the bytes used, a multiple of ALIGNMENT."""

    @abstractmethod
    def decode(self, wire: np.ndarray, out: np.ndarray, key: int) -> int:
        """Read ``out.size`` numbers (float32); returns the bytes used."""


@dataclass(frozen=True)
class Codec(ABC):
    """A wire format with its parameters.

    Attributes
    ----------
    name : str
        As it was given: ``int8:block=128``.
    """

    name: str

    fixed = True  # every chunk of a given size takes the same number of bytes
    largest = float(np.finfo(np.float32).max)  # larger magnitudes overflow
    sparse = False  # most elements are not sent, the others as they are
    chance = False  # other results from run to run
    needs_whole = False  # must know the largest magnitude of the whole contribution beforehand

    @abstractmethod
    def chunk_bytes(self, count: int) -> int:
        """Bytes of ``count`` encoded elements (``fixed``), or at most so many; a multiple of ALIGNMENT."""

    @abstractmethod
    def bound(self) -> Bound:
        """A-priori error of encoding once."""

    @abstractmethod
    def coder(self) -> Coder:
        """Make a coder."""


def padded(nbytes: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
