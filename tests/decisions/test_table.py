"""Decision tables: what they choose, how sure they are, and that they can be refined."""

import json
from dataclasses import replace

import pytest

from mpi_allreduce.algorithms import names
from mpi_allreduce.decisions import Choice, DecisionTable, Rule, Situation, built_in, read_table
from mpi_allreduce.decisions.table import write_table

HERE = Situation("MPICH 5.0.2", ranks=8, nodes=4, crowded=False, native=True)


def anything(name):
    return True


def timing(seconds, spread=0.001):
    return (seconds, seconds * (1 - spread), seconds * (1 + spread))


def table(sizes, launch="one", situation=HERE, onto=None, spread=0.001):
    """A table of one launch: ``sizes`` maps bytes to times in us."""
    rules = [
        (situation, Rule(size, {launch: {name: timing(us * 1e-6, spread) for name, us in times.items()}}))
        for size, times in sizes.items()
    ]
    return (onto or DecisionTable()).merged(rules)


def chosen(of, nbytes, situation=HERE, allowed=anything):
    choice = of.choose(situation, nbytes, allowed)
    return choice.algorithm if choice else None


def test_the_fastest_at_the_nearest_measured_size_is_chosen():
    made = table({1000: {"vendor": 10, "ring": 20}, 100_000: {"vendor": 90, "ring": 60}})
    assert [chosen(made, n) for n in (300, 1000, 9000, 11_000, 1_000_000)] == ["vendor"] * 3 + ["ring"] * 2


def test_launches_without_a_common_algorithm_are_no_reason_to_fail():
    made = table({1000: {"ring": 10, "linear": 30}})
    made = table({1000: {"circulant": 20}}, launch="two", onto=made)
    assert chosen(made, 1000) == "ring"


def test_nothing_is_said_far_outside_of_what_was_measured():
    made = table({1000: {"vendor": 10}, 100_000: {"ring": 60}})
    assert [chosen(made, n) for n in (100, 2_000_000)] == [None, None]
    for other in (
        replace(HERE, library="Open MPI 5.0.11"),
        replace(HERE, ranks=32),
        replace(HERE, nodes=1),
        replace(HERE, crowded=True),
        replace(HERE, native=False),
    ):
        assert chosen(made, 1000, other) is None
    assert chosen(made, 1000, replace(HERE, ranks=12, nodes=6)) == "vendor"


def test_the_nearest_situation_counts():
    made = table({1000: {"vendor": 1}}, onto=table({1000: {"ring": 1}}, situation=replace(HERE, ranks=4, nodes=2)))
    assert chosen(made, 1000, replace(HERE, ranks=6, nodes=3)) == "vendor"
    assert chosen(made, 1000, replace(HERE, ranks=4, nodes=2)) == "ring"


def test_what_is_not_allowed_is_passed_over():
    made = table({1000: {"ring": 1, "vendor": 3, "linear": 2}})
    assert chosen(made, 1000, allowed={"vendor", "linear"}.__contains__) == "linear"
    assert chosen(made, 1000, allowed={"circulant"}.__contains__) is None


def test_a_tie_keeps_the_choice_of_the_next_smaller_size_and_that_of_the_table():
    made = table({10: {"a": 5, "b": 8}, 100: {"a": 10.1, "b": 10}, 1000: {"a": 20, "b": 10}})
    assert [chosen(made, n) for n in (10, 100, 1000)] == ["a", "a", "b"]
    again = table({100: {"a": 10.1, "b": 9.99}}, launch="two", onto=made)
    assert chosen(again, 100) == "a"


def test_more_launches_refine_and_the_same_launch_counts_once():
    made = table({1000: {"a": 10, "b": 11}})
    assert table({1000: {"a": 10, "b": 11}}, onto=made) == made
    refined = table({1000: {"a": 13, "b": 11}}, launch="two", onto=made)
    refined = table({1000: {"a": 13, "b": 11}}, launch="three", onto=refined)
    assert chosen(refined, 1000) == "b"
    assert len(refined.entries[0].rules[0].launches) == 3


def test_launches_are_compared_within_not_across():
    """The second launch ran on a slower day, and measured c alone: its times say nothing of those of the first."""
    made = table({1000: {"a": 10, "b": 11}})
    made = table({1000: {"a": 40, "b": 44, "c": 1}}, launch="two", onto=made)
    assert [name for name, _ in made.entries[0].rules[0].ranking()] == ["a", "b"]
    assert dict(made.entries[0].rules[0].ranking())["b"] == pytest.approx(1.1)


def test_it_is_sure_only_if_intervals_are_apart_in_every_launch():
    def is_sure(of):
        return of.entries[0].rules[0].is_sure()

    made = table({1000: {"a": 10, "b": 11}}, spread=0.01)
    assert is_sure(made)
    assert not is_sure(table({1000: {"a": 10, "b": 11}}, spread=0.1))
    assert not is_sure(table({1000: {"a": 11, "b": 10.9}}, launch="two", onto=made))


def test_a_table_survives_being_written_and_read(tmp_path):
    made = table({1000: {"a": 10, "b": 11}, 4000: {"b": 3}})
    write_table(made, tmp_path / "new" / "table.json")
    again = read_table(tmp_path / "new" / "table.json")
    assert chosen(again, 1000) == "a"
    assert table({1000: {"a": 10, "b": 11}}, onto=again).entries == again.entries


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"format": "mpi_allreduce.decisions", "version": 99})])
def test_what_is_no_table_is_refused_with_the_remedy(tmp_path, text):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(ValueError, match=r"t\.json: not a decision table .*; make one with mpi_allreduce tune"):
        read_table(tmp_path / "t.json")


def test_a_missing_table_is_empty_unless_the_variable_asks_for_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert read_table() == DecisionTable()
    monkeypatch.setenv("MPI_ALLREDUCE_TABLE", str(tmp_path / "none.json"))
    with pytest.raises(ValueError, match="MPI_ALLREDUCE_TABLE: there is no file"):
        read_table()


@pytest.mark.parametrize("nodes", [1, 2, 5])
@pytest.mark.parametrize("per_node", [1, 4])
@pytest.mark.parametrize("nbytes", [0, 4, 5000, 1 << 20, 1 << 30])
@pytest.mark.parametrize("native", [False, True])
def test_the_built_in_rule_chooses_something_that_is_allowed(nodes, per_node, nbytes, native):
    situation = Situation("any", nodes * per_node, nodes, False, native)
    for allowed in (anything, names(ordered=True).__contains__, {"vendor"}.__contains__):
        choice = built_in(situation, nbytes, allowed)
        assert isinstance(choice, Choice)
        assert allowed(choice.algorithm) or choice.algorithm == "vendor"
        assert "built-in rule" in str(choice)


def test_between_nodes_the_cost_model_turns_from_few_rounds_to_few_bytes():
    situation = Situation("any", 16, 16, False, True)
    assert built_in(situation, 4096, anything).algorithm in ("recursive_doubling", "recursive_multiplying")
    assert built_in(situation, 64 << 20, anything).algorithm in ("circulant", "rabenseifner", "swing")
