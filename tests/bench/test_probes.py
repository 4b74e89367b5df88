"""Elementary operations: what is timed is what a probe says, and a record gives it back."""

import numpy as np
import pytest

from mpi_allreduce.bench import read_probes
from mpi_allreduce.bench.probes import TRAIN, measure_probes
from mpi_allreduce.bench.settings import Settings

pytestmark = pytest.mark.mpi

QUICK = Settings(
    algorithms=("ring",),
    sizes=(4,),
    dtype=np.dtype("f4"),
    max_seconds=0.2,
    probe_seconds=0.3,
    passes=1,
    repetitions=(5, 5),
)


def test_pairs_are_timed_where_there_are_two_ranks_and_additions_everywhere(comm):
    probes = measure_probes(comm, 0.5)
    if comm.rank:
        assert probes == []
        return
    kinds = {(probe.kind, probe.place) for probe in probes}
    assert kinds == {("add", "cores")} | ({("train", "node"), ("exchange", "node")} if comm.size > 1 else set())
    assert all((probe.seconds > 0).all() and len(probe.seconds) >= 4 for probe in probes)


def test_a_train_takes_at_least_its_delays_and_larger_messages_and_additions_take_longer(comm):
    probes = measure_probes(comm, 1.0)
    for probe in probes:
        assert probe.seconds.min() >= (probe.messages - 1) * probe.delay
    for kind in {probe.kind for probe in probes}:
        sizes = {p.bytes: np.median(p.seconds) for p in probes if p.kind == kind and p.messages == 1}
        assert sizes[max(sizes)] > sizes[min(sizes)], kind
    assert comm.size == 1 or comm.rank or {p.messages for p in probes if p.kind == "train"} == {1, TRAIN}


def test_probes_are_recorded_once_for_each_launch_and_read_without_the_cases(bench, comm):
    right, _, path, _ = bench()
    assert right
    if comm.rank:
        return
    (launch, probes), *others = read_probes(path).items()
    assert not others
    assert launch == "launch-0001"
    assert {probe["kind"] for probe in probes} >= {"add"}
    for probe in probes:
        assert set(probe) == {"kind", "place", "bytes", "messages", "delay", "seconds"}
        assert probe["seconds"].ndim == 1


def test_a_launch_without_time_for_probes_has_none(bench, comm):
    _, _, path, _ = bench(probe_seconds=0.0)
    if comm.rank == 0:
        assert read_probes(path) == {"launch-0001": []}
