"""Rules for MPI libraries: their exact texts, what they choose at every size, and that a real library follows them."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_allreduce.__main__ import main
from mpi_allreduce.bench import read_launches
from mpi_allreduce.decisions import read_table
from mpi_allreduce.tuning.export import Decision, clauses
from mpi_allreduce.tuning.vendors import OWN, VENDORS, Clause, Forcing, read_base
from tests.tuning.test_training import record

LIBRARIES = {
    "openmpi": "Open MPI v5.0.11, package",
    "mpich": "MPICH Version:      5.0.2",
    "impi": "Intel(R) MPI Library 2021.18",
}
DECIDED = [
    Decision(n, Forcing(name), 1.0, (1, 1, 1), True, "") for n, name in ((1024, "ring"), (4096, OWN), (65536, "ring"))
]
BEFORE = {"avg_msg_size<=8": {"algorithm=MPIR_Allreduce_intra_recursive_doubling": {}}, "avg_msg_size=any": {
    "algorithm=MPIR_Allreduce_intra_reduce_scatter_allgather": {}}}  # fmt: skip
BASE = {
    "collective=bcast": {"algorithm=MPIR_Bcast_intra_binomial": {}},
    "collective=allreduce": {"comm_type=intra": BEFORE, "comm_type=inter": {"algorithm=X": {}}},
}
RING = {"algorithm=MPIR_Allreduce_intra_ring": {}}


def in_openmpi(text, ranks, size):
    """The algorithm by a classic rule file, as its documentation describes it."""
    numbers = [int(word) for line in text.splitlines() for word in line.partition("#")[0].split()]
    collectives, identity, sizes, *rest = numbers
    assert (collectives, identity) == (1, 2)
    found = None
    for _ in range(sizes):
        key, count, *rest = rest
        rules, rest = [rest[4 * i : 4 * i + 4] for i in range(count)], rest[4 * count :]
        assert rules[0][0] == 0
        if found is None or key <= ranks:
            found = [rule[1] for rule in rules if rule[0] <= size][-1]
    assert not rest
    return str(found)


def in_mpich(text, ranks, size, **operator):
    """The algorithm by a tree of conditions; the first that holds counts."""
    facts = {
        "comm_size": ranks,
        "avg_msg_size": size,
        "is_commutative": "yes",
        "is_op_built_in": "yes",
        "comm_hierarchy": "parent",
        "comm_type": "intra",
        "count": size // 4,
    } | operator
    tree = json.loads(text)["collective=allreduce"]
    while True:
        for condition, below in tree.items():
            key, relation, value = re.match(r"(\w+)(<=|=|<)(\w+)", condition).groups()
            if key == "algorithm":
                return value.removeprefix("MPIR_Allreduce_intra_")
            value = {"pow2": 1 << (ranks.bit_length() - 1)}.get(value, value)
            if (
                value == "any"
                or {
                    "=": str(facts[key]) == value,
                    "<": facts[key] < int(value) if relation == "<" else 0,
                    "<=": facts[key] <= int(value) if relation == "<=" else 0,
                }[relation]
            ):
                tree = below
                break
        else:
            raise AssertionError(f"nothing holds for {facts} in {tree}")


def in_impi(text, ranks, size):
    """The algorithm by clauses, which must follow each other from 0 to the largest size."""
    found = [tuple(map(int, re.fullmatch(r"(\d+):(\d+)-(\d+)", part).groups())) for part in text.strip().split(";")]
    assert (found[0][1], found[-1][2]) == (0, 2**31 - 1)
    assert all(after[1] == before[2] + 1 for before, after in pairwise(found))
    (choice,) = [algorithm for algorithm, first, last in found if first <= size <= last]
    return str(choice)


READERS = {"openmpi": in_openmpi, "mpich": in_mpich, "impi": in_impi}


def test_openmpi_rules_are_a_classic_file_for_communicators_of_this_size_only():
    text = VENDORS["openmpi"].write(clauses(DECIDED, VENDORS["openmpi"]), 4, "")
    bare = [line.partition("#")[0].strip() for line in text.splitlines()]
    assert bare == ["", "1", "2", "3", "2", "1", "0 0 0 0",
                    "4", "4", "0 0 0 0", "256 4 0 0", "2049 0 0 0", "16385 4 0 0", "5", "1", "0 0 0 0"]  # fmt: skip
    segments = [Clause(0, None, Forcing.parse("segmented_ring:segsize=65536"))]
    assert "\n0 5 0 65536 #" in VENDORS["openmpi"].write(segments, 4, "")


def test_mpich_rules_are_the_whole_selection_changed_where_the_measurements_hold():
    text = VENDORS["mpich"].write(clauses(DECIDED, VENDORS["mpich"]), 4, json.dumps(BASE))
    sizes = {"avg_msg_size<=255": BEFORE, "avg_msg_size<=2048": RING, "avg_msg_size<=16384": BEFORE,
             "avg_msg_size=any": RING}  # fmt: skip
    built_in = {"is_op_built_in=yes": {"count<pow2": BEFORE, "count=any": sizes}, "is_op_built_in=no": BEFORE}
    measured = {"is_commutative=yes": built_in, "is_commutative=no": BEFORE}
    intra = {"comm_size<=3": BEFORE, "comm_size<=4": measured, "comm_size=any": BEFORE}
    found = json.loads(text)
    assert found == BASE | {"collective=allreduce": {**BASE["collective=allreduce"], "comm_type=intra": intra}}
    assert list(found["collective=allreduce"]["comm_type=intra"]) == list(intra), "the first that holds counts"
    for operator in ({"is_commutative": "no"}, {"is_op_built_in": "no"}, {"count": 3}):
        assert in_mpich(text, 4, 1024, **operator) == "reduce_scatter_allgather"
    smp = VENDORS["mpich"].write([Clause(0, None, Forcing("smp"))], 4, json.dumps(BASE))
    of_nodes = {"comm_hierarchy=parent": {"algorithm=MPIR_Allreduce_intra_smp": {}}, "comm_hierarchy=any": BEFORE}
    assert json.dumps(of_nodes) in json.dumps(json.loads(smp))
    tree = VENDORS["mpich"].write([Clause(0, None, Forcing.parse("tree:k=4"))], 4, json.dumps(BASE))
    leaf = {"tree_type=kary": {}, "k=4": {}, "chunk_size=0": {}, "buffer_per_child=0": {}}
    assert json.dumps({"algorithm=MPIR_Allreduce_intra_tree": leaf}) in json.dumps(json.loads(tree))


def test_impi_rules_are_contiguous_clauses():
    text = VENDORS["impi"].write(clauses(DECIDED, VENDORS["impi"]), 4, "")
    assert text == "8:0-2048;0:2049-16384;8:16385-2147483647\n"


@pytest.mark.parametrize("name", VENDORS)
@given(data=st.data())
def test_every_size_has_one_clause_which_is_that_of_the_nearest_measured_size(name, data):
    vendor = VENDORS[name]
    sizes = sorted(data.draw(st.sets(st.integers(1, 2**30), min_size=1, max_size=8)))
    names = data.draw(st.lists(st.sampled_from(sorted(vendor.values)), min_size=len(sizes), max_size=len(sizes)))
    decided = [Decision(n, Forcing(f), 1.0, (1, 1, 1), True, "") for n, f in zip(sizes, names, strict=True)]
    parts = clauses(decided, vendor)
    assert parts[0].first == 0
    assert parts[-1].last is None
    assert all(after.first == before.last + 1 > before.first for before, after in pairwise(parts))
    assert all(after.forcing != before.forcing for before, after in pairwise(parts))
    text = vendor.write(parts, 4, json.dumps(BASE))
    around = {edge + d for part in parts for edge in (part.first, part.last or 2**30) for d in (-1, 0, 1)}
    for size in sorted(n for n in {*sizes, *around, data.draw(st.integers(0, 2**31 - 1))} if n >= 16):
        nearest = [d for d in decided if all(max(size, d.bytes) * min(size, other.bytes) <= max(size, other.bytes)
                                             * min(size, d.bytes) for other in decided)]  # fmt: skip
        wanted = {vendor.values[d.forcing.name] for d in nearest}
        if vendor.keeps and size < sizes[0] // 4:
            wanted = {vendor.values[OWN]}
        if name == "mpich":
            wanted = {"reduce_scatter_allgather" if w == "auto" else w for w in wanted}
        assert READERS[name](text, 4, size) in wanted


PRINTS = {"256": "a", "4096": "a", "65536": "a", "1048576": "a"}


def launch(path, library, times, forcing="", prints="bbbb", day=1, **environment):
    """A record with these times in microseconds, and a fingerprint."""
    vendor = VENDORS[library]
    facts = {
        "started": f"2026-01-{day:02d}T00:00:00+00:00",
        "mpi_library": LIBRARIES[library],
        "variables": vendor.settings(Forcing.parse(forcing)) if forcing else {},
        "vendor_fingerprint": (dict(zip(PRINTS, prints, strict=True)) if forcing else PRINTS),
    }
    file = path / f"{forcing or 'default'}-{day}.h5"
    record(file, {("vendor", size): time for size, time in times.items()}, **facts | environment).finish()
    return str(file)


def exported(capsys, library, files, *options):
    status = main(["tune", "--export", library, *files, *options])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_the_default_is_left_only_for_what_is_surely_faster_and_proved_to_have_run(tmp_path, capsys):
    default = {256: 10, 4096: 10, 65536: 100, 1 << 20: 1000}
    files = [launch(tmp_path, "openmpi", default, day=d) for d in (1, 2, 3)]
    for d, middle in ((1, 50), (2, 101), (3, 50)):  # faster only once at 64 KiB
        ring = {256: 50, 4096: 9.9, 65536: middle, 1 << 20: 500}
        files.append(launch(tmp_path, "openmpi", ring, "ring", day=d))
        files.append(launch(tmp_path, "openmpi", dict.fromkeys(default, 1), "rabenseifner", "aaaa", day=d))
    status, out = exported(capsys, "openmpi", files, "-o", str(tmp_path / "rules"))
    assert status == 0
    assert "3 launches of each" in out
    text = (tmp_path / "rules").read_text()
    assert [in_openmpi(text, 4, size) for size in default] == ["0", "0", "0", "4"]
    assert [in_openmpi(text, ranks, 1 << 20) for ranks in (2, 3, 4, 5, 100)] == ["0", "0", "4", "0", "0"]
    assert re.search(r"1 MiB +100\d +ring +2\.00 \(1\.\d\d \.\. 2\.\d\d\) +sure", out)
    assert "rabenseifner seems faster: same bits, no proof" in " ".join(out.split())
    assert "no effect, or the same order): rabenseifner" in out
    assert f"export OMPI_MCA_coll_tuned_dynamic_rules_filename={tmp_path / 'rules'}" in out
    assert {"export OMPI_MCA_coll_tuned_use_dynamic_rules=1", "export OMPI_MCA_coll_han_priority=0"} <= {
        *out.split("\n")
    }


@pytest.mark.parametrize(("prints", "chosen"), [("abba", "4"), ("aaba", "0"), ("abaa", "0"), ("baab", "0")])
def test_between_two_fingerprints_both_must_differ(tmp_path, capsys, prints, chosen):
    files = [launch(tmp_path, "openmpi", {16384: 10}, day=d) for d in (1, 2, 3)]
    files += [launch(tmp_path, "openmpi", {16384: 5}, "ring", prints, d) for d in (1, 2, 3)]
    exported(capsys, "openmpi", files, "-o", str(tmp_path / "rules"))
    text = (tmp_path / "rules").read_text() if (tmp_path / "rules").exists() else "1 2 1 2 1 0 0 0 0"
    assert in_openmpi(text, 4, 16384) == chosen


def test_where_rules_cannot_name_the_default_the_next_best_is_named_and_losses_are_told(tmp_path, capsys):
    files = []
    for d in (1, 2, 3):
        for forcing, small, large in (("", 10, 100), ("ring", 40, 50), ("knomial", 20, 200)):
            files.append(launch(tmp_path, "impi", {256: small, 65536: large}, forcing, day=d))
    status, out = exported(capsys, "impi", files)
    assert status == 0
    assert "export I_MPI_ADJUST_ALLREDUCE='9:0-4096;8:4097-2147483647'" in out
    assert re.search(r"knomial +0\.50 .* SLOWER than the default", out)
    assert not list(tmp_path.glob("*.rules"))


def test_fewer_than_three_launches_are_not_sure_of_anything(tmp_path, capsys):
    files = [launch(tmp_path, "openmpi", {4096: t}, f, day=d) for t, f in ((10, ""), (2, "ring")) for d in (1, 2)]
    status, out = exported(capsys, "openmpi", files)
    assert status == 0
    assert "ring seems faster: too few launches" in " ".join(out.split())
    assert "no rules written" in out


def test_nothing_is_written_where_nothing_is_faster(tmp_path, capsys):
    files = [launch(tmp_path, "openmpi", {4096: 10}), launch(tmp_path, "openmpi", {4096: 10.1}, "ring")]
    status, out = exported(capsys, "openmpi", files, "-o", str(tmp_path / "rules"))
    assert status == 0
    assert "no rules written" in out
    assert not (tmp_path / "rules").exists()


@pytest.mark.parametrize(
    ("library", "others", "message"),
    [
        ("openmpi", [{"mpi_library": "MPICH Version: 4.2"}], "is of MPICH 4.2, not of Open MPI"),
        ("openmpi", [{}], "no launch that forced an algorithm"),
        ("openmpi", [{"forcing": "ring", "ranks": 8}], "several situations: 4 ranks on 2 nodes.*; 8 ranks"),
        ("openmpi", [{"variables": {VENDORS["openmpi"].variable: "77"}}], "=77: expected one of 0, 1"),
        ("impi", [{"variables": {"I_MPI_ADJUST_ALLREDUCE": "8:0-9"}}], "it ran under rules"),
    ],
)  # fmt: skip
def test_records_that_do_not_fit_are_refused(tmp_path, capsys, library, others, message):
    files = [launch(tmp_path, library, {4096: 10})]
    files += [launch(tmp_path, library, {4096: 5}, day=2, **other) for other in others]
    status, out = exported(capsys, library, files)
    assert status == 2
    assert re.search(message, out)


def test_forced_launches_do_not_enter_the_table_of_auto(tmp_path, capsys):
    files = [launch(tmp_path, "mpich", {4096: 10}), launch(tmp_path, "mpich", {4096: 1}, "ring", day=2)]
    assert main(["tune", *files, "--table", str(tmp_path / "t.json")]) == 0
    assert "Left out: 1 launch that forced an algorithm" in capsys.readouterr().out
    (entry,) = read_table(tmp_path / "t.json").entries
    assert [len(rule.launches) for rule in entry.rules] == [1]


def test_mpichs_own_selection_is_found_inside_a_library(tmp_path):
    device = {"collective=allreduce": {"composition=MPIDI_Allreduce_intra_composition_alpha": {}}, "x": "y" * 300}
    whole = json.dumps(BASE | {"x": "y" * 300})
    (tmp_path / "lib.so").write_bytes(b"\x7fELF\0" + json.dumps(device).encode() + b"\0" + whole.encode() + b"\0\1{")
    assert read_base(tmp_path / "lib.so") == whole
    (tmp_path / "lib.so").write_bytes(b"\x7fELF\0")
    (tmp_path / "alone.json").write_text(json.dumps({"collective=allreduce": BASE["collective=allreduce"]}))
    with pytest.raises(ValueError, match=r"alone\.json: has rules for MPI_Allreduce alone"):
        read_base(tmp_path / "alone.json")
    with pytest.raises(ValueError, match=r"lib\.so: no selection of algorithms .* --base"):
        read_base(tmp_path / "lib.so")


def installed():
    """Which library's mpirun is on PATH."""
    if not shutil.which("mpirun"):
        return None
    text = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout
    return next(
        (n for n, words in {"impi": "Intel(R) MPI", "openmpi": "Open MPI", "mpich": "HYDRA"}.items() if words in text),
        None,
    )


@pytest.mark.skipif(not installed(), reason="there is no mpirun on PATH")
def test_a_real_library_follows_the_rules_where_they_say_so_and_only_there(tmp_path):
    """By bits: the default's where the rules are silent, those of a forced ring where they say ring."""
    name = installed()
    vendor = VENDORS[name]
    kept = OWN if vendor.keeps else "shumilin_ring"
    rules = [Clause(0, 2047, Forcing(kept)), Clause(2048, 32767, Forcing("ring")), Clause(32768, None, Forcing(kept))]
    from mpi_allreduce.tuning.command import _library

    text = vendor.write(rules, 4, read_base(_library()) if name == "mpich" else "")
    path = tmp_path / "rules"
    path.write_text(text)
    bits = {
        label: fingerprints(tmp_path / f"{label}.h5", settings)
        for label, settings in (
            ("kept", vendor.settings(Forcing(kept))),
            ("ring", vendor.settings(Forcing("ring"))),
            ("ruled", vendor.environment(text, path)),
        )
    }
    assert all(bits["kept"][size] != bits["ring"][size] for size in PRINTS)
    assert bits["ruled"] == {size: bits["ring" if size == "4096" else "kept"][size] for size in PRINTS}


def fingerprints(path, settings):
    command = ["mpirun", "-n", "4", sys.executable, "-m", "mpi_allreduce", "bench", "--algorithms", "vendor"]
    command += shlex.split("--sizes 4K --passes 1 --max-seconds 1 --probe-seconds 0 --out") + [str(path)]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (facts,) = read_launches(path).values()
    return facts["environment"]["vendor_fingerprint"]


OWN_OPERATOR = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
def add(a, b, datatype):
    right = np.frombuffer(b, "f4")
    np.add(np.frombuffer(a, "f4"), right, out=right)
op = MPI.Op.Create(add, commute=True)
for count in (1, 3, 1024, 65536):
    total = np.empty(count, "f4")
    comm.Allreduce(np.full(count, comm.rank + 1, "f4"), total, op)
    assert (total == comm.size * (comm.size + 1) / 2).all()
"""


@pytest.mark.skipif(not installed(), reason="there is no mpirun on PATH")
@pytest.mark.parametrize("ranks", [3, 4])
def test_programs_with_operators_and_communicators_of_their_own_live_on_under_rules(tmp_path, ranks):
    """MPICH ends them where a rule says an algorithm that only knows built-in operators."""
    name = installed()
    vendor = VENDORS[name]
    algorithm = {"mpich": "reduce_scatter_allgather"}.get(name, "rabenseifner")
    from mpi_allreduce.tuning.command import _library

    text = vendor.write([Clause(0, None, Forcing(algorithm))], 4, read_base(_library()) if name == "mpich" else "")
    (tmp_path / "rules").write_text(text)
    settings = vendor.environment(text, tmp_path / "rules")
    command = ["mpirun", "-n", str(ranks), sys.executable, "-c", OWN_OPERATOR]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
