"""Pretended nodes: ranks of one machine that believe to be on several."""

import pytest

from mpi_allreduce.runtime import communicator


def node_number(layout, rank, size):
    """On which pretended node a rank is."""
    return {
        "one node": 0,
        "one rank per node": rank,
        "pairs": rank // 2,
        "first alone": min(rank, 1),
        "round robin": rank % 2,
    }[layout]


@pytest.fixture
def on_nodes(comm, monkeypatch):
    """A duplicate of the communicator whose ranks believe to be on several nodes."""
    made = []

    def make(layout):
        def node_of(private):
            return private.Split(node_number(layout, private.rank, private.size), private.rank)

        monkeypatch.setattr(communicator, "node_of", node_of)
        made.append(comm.Dup())
        return made[-1]

    yield make
    for each in made:
        each.Free()
