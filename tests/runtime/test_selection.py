"""``algorithm="auto"``: right, the same on all ranks, explained; and found again without searching."""

import gc

import numpy as np
import pytest

from mpi_allreduce import IN_PLACE, MAX, allreduce, explain, iallreduce, plan
from mpi_allreduce.decisions import DecisionTable, Rule, Situation
from mpi_allreduce.decisions.table import write_table
from mpi_allreduce.runtime import recent

pytestmark = pytest.mark.mpi


@pytest.fixture
def own(comm):
    """A communicator on which nothing was chosen yet."""
    mine = comm.Dup()
    yield mine
    mine.Free()


@pytest.fixture
def table_of(own, tmp_path, monkeypatch):
    """Put a table in place that holds one rule for this situation; only rank 0 finds it."""

    def put(*fastest):
        situation = explain(own.Dup(), np.ones(256)).situation
        times = {name: (i * 1e-6, i * 1e-6, i * 1e-6) for i, name in enumerate(fastest, 1)}
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "nothing"))
        if own.rank == 0:
            write_table(DecisionTable().merged([(situation, Rule(2048, {"x": times}))]), tmp_path / "t.json")
            monkeypatch.setenv("MPI_ALLREDUCE_TABLE", str(tmp_path / "t.json"))

    return put


@pytest.mark.parametrize("count", [0, 1, 1000, 5000, 100_000])
def test_auto_is_exact_whatever_it_chooses(comm, count):
    mine = np.arange(count) + comm.rank
    expected = np.arange(count) * comm.size + sum(range(comm.size))
    np.testing.assert_array_equal(allreduce(comm, mine, algorithm="auto"), expected)
    np.testing.assert_array_equal(iallreduce(comm, mine, algorithm="auto").wait(), expected)
    np.testing.assert_array_equal(plan(comm, IN_PLACE, mine, algorithm="auto")(), expected)


def test_auto_keeps_the_order_of_operands_that_need_it(comm):
    """Of two operands the right one, and of two the left one, which no reordering algorithm gets right."""
    mine = np.full(3000, comm.rank)
    for op, expected in ((lambda left, right: right + 0 * left, comm.size - 1), (lambda left, right: left + 0, 0)):
        assert (plan(comm, mine, op=op, algorithm="auto")() == expected).all()


def test_the_table_that_rank_0_finds_decides_on_all_ranks(own, table_of):
    table_of("pipelined_chain:3", "vendor")
    choice = explain(own, np.ones(256))
    assert choice.algorithm == "pipelined_chain:3"
    assert "t.json" in choice.reason
    made = plan(own, np.ones(256), algorithm="auto")
    assert (made.algorithm, made.choice) == ("pipelined_chain:3", choice)
    assert (made() == own.size).all()
    assert plan(own, np.ones(256), algorithm="reproducible:auto").algorithm == "reproducible:pipelined_chain:3"


def test_what_the_table_says_is_not_taken_where_it_cannot_be(own, table_of):
    table_of("ring", "linear", "vendor")
    assert explain(own, np.ones(256), op=MAX).algorithm == "ring"
    assert explain(own, np.ones(256), op=lambda a, b: b + 0 * a).algorithm != "ring"


def test_a_bad_table_is_an_error_on_every_rank(own, tmp_path, monkeypatch):
    if own.rank == 0:
        (tmp_path / "bad.json").write_text("{}")
        monkeypatch.setenv("MPI_ALLREDUCE_TABLE", str(tmp_path / "bad.json"))
    with pytest.raises(ValueError, match=r"bad\.json: not a decision table"):
        allreduce(own, np.ones(3), algorithm="auto")


def test_without_a_table_a_rule_is_given_as_the_reason(own, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    choice = explain(own, np.ones(1 << 18))
    assert isinstance(choice.situation, Situation)
    assert "built-in rule" in choice.reason
    assert choice.situation.ranks == own.size


def test_a_call_with_the_same_objects_is_recognised_and_with_changed_ones_is_not(own):
    mine, result = np.ones(10), np.empty(10)
    allreduce(own, mine, result)
    known = recent.recall(own, mine, result, allreduce.__defaults__[1], "auto")
    assert known is not None
    mine[:] = 2
    assert (allreduce(own, mine, result) == 2 * own.size).all()
    with pytest.raises(ValueError, match="resize"):
        mine.resize(20)
    result.flags.writeable = False
    with pytest.raises(ValueError, match="recvbuf: is read-only"):
        allreduce(own, mine, result)
    result.flags.writeable = True
    mine.dtype = result.dtype = np.int64
    mine[:] = 3
    assert (allreduce(own, mine, result) == 3 * own.size).all()


def test_a_dead_array_or_a_freed_communicator_is_not_taken_for_a_living_one(comm):
    for value in range(1, 10):
        own = comm.Dup()
        mine, result = np.full(100, value), np.empty(100, int)
        for _ in range(2):
            assert (allreduce(own, mine, result) == value * comm.size).all()
        del mine, result
        own.Free()
        gc.collect()
