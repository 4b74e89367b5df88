"""Launches whose times are known: in files, or where there must be very many, in memory."""

from pathlib import Path

import numpy as np
from material import Launch, Material, Setup

from mpi_allreduce.bench.records import Recorder
from tests.bench.test_records import CASE

ENVIRONMENT = {
    "started": "2026-01-02T03:04:05+00:00", "ranks": 4, "hosts": {"a": 4}, "cores_on_host": 8, "cpu": "CPU",
    "mpi_library": "MPICH Version:      5.0.2\n", "host_of_rank": ["a"] * 4, "variables": {"MPIR_CVAR_A": "1"},
}  # fmt: skip
SETTINGS = {
    "op": "SUM", "dtype": "float32", "in_place": False, "mode": "isolated", "buffers": 0, "skew": "none",
    "data": "normal", "ci": 0.03,
}  # fmt: skip


def draw(seconds, ranks=4, launches=3, visits=6, noise=0.01, between=0.0, seed=1):
    """For each launch a dict: case -> [visit, repetition, rank].

    ``seconds`` is a dict by (algorithm, bytes) or (algorithm, bytes, codec); ``noise`` is that of visits and of
    repetitions, ``between`` that of launches, both relative.
    """
    random = np.random.default_rng(seed)
    for _ in range(launches):
        yield {
            case: true
            * (1 + between * random.standard_normal())
            * (1 + noise * random.standard_normal((visits, 1, 1)))
            * (1 + noise * random.standard_normal((visits, 5, ranks)))
            for case, true in seconds.items()
        }


def record(path, seconds, environment=(), facts=(), **how):
    """Append launches to a file; ``facts`` are attributes of all cases, ``how`` is as for :func:`draw`."""
    environment = {**ENVIRONMENT, **dict(environment)}
    for drawn in draw(seconds, environment["ranks"], **how):
        recorder = Recorder(path, environment, SETTINGS)
        for (algorithm, size, *codec), times in drawn.items():
            attributes = {**CASE, **dict(facts), "algorithm": algorithm, "bytes": size, "ranks": environment["ranks"]}
            if codec:
                attributes |= {"codec": codec[0], "wire_bytes": size // 4, "error": 1e-2}
            for number, visit in enumerate(times):
                recorder.add({**attributes, "pass": number}, visit)
        recorder.finish()
    return path


def in_memory(seconds, **how):
    """The same launches as from a file, with no more than statistics need."""
    setup = Setup.of(ENVIRONMENT, SETTINGS)
    launches = []
    for number, drawn in enumerate(draw(seconds, **how), 1):
        rows = tuple(
            {"algorithm": algorithm, "bytes": size, "codec": "none", "delays": None,
             "seconds": np.concatenate(times), "visit": np.repeat(np.arange(len(times)), times.shape[1])}
            for (algorithm, size), times in drawn.items()
        )  # fmt: skip
        launches.append(Launch(Path("none"), f"launch-{number}", "", setup, "", ENVIRONMENT, rows, ()))
    return Material(tuple(launches))
