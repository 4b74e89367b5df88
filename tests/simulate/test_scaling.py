"""The simulate command, and the GOAL files that it writes."""

import re
from collections import Counter, defaultdict

import pytest

from mpi_allreduce.__main__ import main
from mpi_allreduce.algorithms import get, names
from mpi_allreduce.simulate import Machine
from mpi_allreduce.simulate.goal import goal


def test_a_table_for_each_size_marks_the_fastest_and_shows_the_loads(capsys, tmp_path):
    Machine(alpha=1e-3, beta=1e-9, gamma=0, name="slow to start").save(tmp_path / "m.json")
    options = ["--algorithms", "ring,binomial_tree", "--ranks", "4:16", "--sizes", "8,1G", "--topology", "torus:2"]
    assert main(["simulate", *options, "--machine", str(tmp_path / "m.json")]) == 0
    small, large = capsys.readouterr().out.split("milliseconds (* the fastest)")[1:]
    assert small.splitlines()[1].split() == ["ranks", "4", "8", "16"]
    assert re.search(r"binomial_tree +4\* +6\* +8\*", small), "two messages to the root and two back, of 1 ms each"
    assert re.search(r"^ring +[\d.e+]+\* +[\d.e+]+\* +[\d.e+]+\*", large, re.MULTILINE)
    root = next(line for line in large.splitlines()[6:] if line.startswith("binomial_tree"))
    assert root.split()[1:5] == ["30", "4", "4", "1.875"], (
        "messages; buffers by the root's link, by the root, on average"
    )


@pytest.mark.parametrize("name", names())
def test_a_goal_file_has_every_message_once_on_both_sides_and_no_cycle(name):
    size, nbytes = 6, 50_000
    text = "\n".join(goal(get(name), size, nbytes, gamma=1e-9))
    assert text.startswith(f"num_ranks {size}\n")
    sends, receives = Counter(), Counter()
    ranks = re.findall(r"rank (\d+) {\n(.*?)}", text, re.DOTALL)
    assert [int(rank) for rank, _ in ranks] == list(range(size))
    for rank, body in ranks:
        labels, needs = [], defaultdict(set)
        for line in body.splitlines():
            if found := re.fullmatch(r"(l\d+): (send|recv) (\d+)b (?:to|from) (\d+) tag 0", line):
                labels.append(found[1])
                pair = (int(rank), int(found[4])) if found[2] == "send" else (int(found[4]), int(rank))
                (sends if found[2] == "send" else receives)[(*pair, int(found[3]))] += 1
            elif found := re.fullmatch(r"(l\d+): calc \d+", line):
                labels.append(found[1])
            else:
                later, earlier = re.fullmatch(r"(l\d+) requires (l\d+)", line).groups()
                assert labels.index(earlier) < labels.index(later)
                needs[later].add(earlier)
        assert len(set(labels)) == len(labels)
        assert sum(not needs[label] for label in labels) <= max(len(r) * 2 for r in get(name).schedule(int(rank), size))
    assert sends == receives
    algorithm = get(name)
    total = sum(
        len(e.sent) for r in range(size) for round_ in algorithm.schedule(r, size) for e in round_ if e.dst is not None
    )
    assert sum(key[2] * times for key, times in sends.items()) == pytest.approx(
        total * nbytes / algorithm.blocks(size), rel=0.01
    )


def test_bad_options_are_named(capsys):
    for options, message in (
        (["--ranks", "x"], "ranks: size: expected"),
        (["--topology", "mesh"], "topology: expected"),
        (["--machine", "none.json"], "machine: none.json"),
        (["--algorithms", "rings"], "algorithm: "),
        (["--ranks-per-node", "0"], "ranks-per-node: expected 1"),
    ):
        assert main(["simulate", *options]) == 2
        assert message in capsys.readouterr().err
