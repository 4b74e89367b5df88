"""Shared memory in a node, alone and under a schedule between nodes: exact under load, whatever the layout."""

import os
import subprocess
import sys

import numpy as np
import pytest

from mpi_allreduce import IN_PLACE, MAX, SUM, UnsupportedError, plan
from mpi_allreduce.algorithms import names
from mpi_allreduce.runtime.nodes import CHUNK_BYTES, SMALL_WORK

pytestmark = pytest.mark.mpi
SMALL_REDUCTIONS = int(os.environ.get("MPI_ALLREDUCE_TEST_REDUCTIONS", "20000"))
COUNTS = [0, 1, 2, 7, SMALL_WORK // 32, SMALL_WORK // 32 + 1, CHUNK_BYTES // 8 - 1, CHUNK_BYTES // 8 * 3 + 5]
LAYOUTS = ["one node", "one rank per node", "pairs", "first alone", "round robin"]


@pytest.mark.parametrize(
    ("layout", "between"),
    [(layout, "") for layout in LAYOUTS] + [(LAYOUTS[-1 - i % 4], f":{name}") for i, name in enumerate(names())],
)
def test_hierarchical_is_exact_on_every_layout_of_nodes(comm, on_nodes, layout, between):
    cluster = on_nodes(layout)
    for count in COUNTS if not between else COUNTS[-1:]:
        mine = np.arange(count) % 1000 + comm.rank
        sums = np.arange(count) % 1000 * comm.size + sum(range(comm.size))
        for op, expected in ((SUM, sums), (MAX, np.arange(count) % 1000 + comm.size - 1)):
            run = plan(cluster, mine, op=op, algorithm=f"hierarchical{between}")
            np.testing.assert_array_equal(run(), expected)
            run.recvbuf[...] = -1
            np.testing.assert_array_equal(run(), expected)
            in_place = mine.copy()
            np.testing.assert_array_equal(
                plan(cluster, IN_PLACE, in_place, op=op, algorithm=f"hierarchical{between}")(), expected
            )


def test_hierarchical_sends_between_nodes_only_its_share(comm, on_nodes):
    """2 (N-1)/N of the buffer leaves a node, whatever the number of its ranks."""
    if comm.size != 4:
        pytest.skip("for 4 ranks")
    run = plan(on_nodes("pairs"), np.zeros(4000), algorithm="hierarchical:ring")
    assert run.sent_bytes == 2 * 1 / 2 * 32000 / 2


def test_shared_says_why_it_cannot_span_nodes(comm, on_nodes):
    if comm.size < 2:
        pytest.skip("a single rank is on one node")
    with pytest.raises(UnsupportedError, match="are on different nodes; use hierarchical"):
        plan(on_nodes("one rank per node"), np.zeros(4), algorithm="shared")


@pytest.mark.parametrize("name", ["shared", "hierarchical"])
def test_many_small_reductions_under_load_are_exact(comm, name):
    """Sizes on both sides of the limit follow each other at once, while another process keeps a core busy."""
    limit = SMALL_WORK // max(comm.size - 1, 1) // 8
    counts = [1, 100, limit, limit + 1, 3]
    inputs = [np.empty(count, np.int64) for count in counts]
    runs = [plan(comm, mine, algorithm=name) for mine in inputs]
    load = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if comm.rank == 0 else None
    wrong = 0
    try:
        for i in range(SMALL_REDUCTIONS // (1 if comm.size <= 2 else 10)):
            mine, run = inputs[i % len(runs)], runs[i % len(runs)]
            mine[...] = i + comm.rank
            result = run()
            wrong += int(result[0] != i * comm.size + sum(range(comm.size)) or result[-1] != result[0])
    finally:
        if load:
            load.kill()
            load.wait()
    assert wrong == 0


def test_runs_through_one_memory_take_turns(comm):
    """Several in flight at once, waited for in another order on each rank."""
    rng = np.random.default_rng(comm.rank)
    counts = [10, 100_000, 1, 70_000, 2000]
    inputs = [np.full(count, comm.rank + 1) for count in counts]
    runs = [plan(comm, mine, algorithm=("shared", "hierarchical")[i % 2]) for i, mine in enumerate(inputs)]
    for _ in range(20):
        for run in runs:
            run.recvbuf[...] = 0
            run.start()
        for i in rng.permutation(len(runs)):
            np.testing.assert_array_equal(runs[i].wait(), comm.size * (comm.size + 1) // 2)


def test_freeing_communicators_frees_their_windows(comm):
    for _ in range(60):
        mine = comm.Dup()
        assert (plan(mine, np.ones(20_000), algorithm="shared")() == comm.size).all()
        assert (plan(mine, np.ones(20_000), algorithm="hierarchical")() == comm.size).all()
        mine.Free()
