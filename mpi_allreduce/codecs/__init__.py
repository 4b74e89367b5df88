"""Wire formats for blocks of numbers, and what keeps their errors from adding up; arrays only, no MPI."""

from .codec import CHUNK, Bound, Codec, Coder, Glance
from .registry import NONE, codec_names, get_codec
from .feedback import ErrorFeedback, Residual
from .packet import HEADER_BYTES, Flags, Packer, packet_bytes

# Each of these registers its codecs, in the order of the tables.
from . import floats, integers, signs, sparse, bounded, lowrank
from .lowrank import PowerSGD

__all__ = [
    "CHUNK", "HEADER_BYTES", "NONE", "Bound", "Codec", "Coder", "ErrorFeedback", "Flags", "Glance", "Packer",
    "PowerSGD", "Residual", "codec_names", "get_codec", "packet_bytes",
]  # fmt: skip
