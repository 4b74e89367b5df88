"""Gradients reduced in buckets while they are computed (:class:`mpi_allreduce.GradientSync`), and training with it."""

from .buckets import Bucket, by_bytes, by_layers
from .timeline import Timeline, chrome_trace

__all__ = ["Bucket", "Timeline", "by_bytes", "by_layers", "chrome_trace"]
