"""From records of the benchmark to a table, by the command line."""

import numpy as np

from mpi_allreduce.__main__ import main
from mpi_allreduce.bench.records import Recorder
from mpi_allreduce.decisions import Situation, read_table
from mpi_allreduce.tuning.training import measurements

CASE = {
    "algorithm": "ring", "bytes": 4096, "dtype": "float32", "op": "SUM", "codec": "none", "memory": "host",
    "mode": "isolated", "skew": "none", "data": "normal", "in_place": False, "ranks": 4, "buffers": 1, "wrong": 0,
    "error": 0.0, "identical": True, "repeatable": True, "native_op": True, "warmups": 3, "ended_by": "interval",
    "pass": 0, "rounds": 6, "sent_bytes": 1,
}  # fmt: skip
ENVIRONMENT = {
    "started": "2026-01-01T00:00:00+00:00",
    "ranks": 4,
    "hosts": {"a": 2, "b": 2},
    "host_of_rank": ["a", "a", "b", "b"],
    "cpus_of_rank": ["0-1", "0-1", "0-1", "0-1"],
    "mpi_library": "MPICH Version:      5.0.2\nMPICH Device: ch4",
}
HERE = Situation("MPICH 5.0.2", 4, 2, crowded=False, native=True)


def record(path, microseconds, **environment):
    recorder = Recorder(path, ENVIRONMENT | environment, {"ci": 0.03})
    for (name, size), time in microseconds.items():
        for visit in range(6):
            seconds = np.full((10, 4), time * 1e-6 * (1 + visit / 1000))
            recorder.add({**CASE, "algorithm": name, "bytes": size}, seconds)
    return recorder


def test_tune_makes_a_table_of_records_and_refines_it(tmp_path, capsys):
    first, second, table = tmp_path / "1.h5", tmp_path / "2.h5", tmp_path / "t.json"
    record(first, {("ring", 4096): 10, ("vendor", 4096): 20, ("ring", 4): 9, ("vendor", 4): 2}).finish()
    assert main(["tune", str(first), "--table", str(table)]) == 0
    out = capsys.readouterr().out
    assert "4 ranks on 2 nodes, MPICH 5.0.2" in out
    assert "vendor, 2.00 x its time" in out
    made = read_table(table)
    assert [made.choose(HERE, n, lambda name: True).algorithm for n in (4, 4096)] == ["vendor", "ring"]
    record(second, {("ring", 4096): 50, ("vendor", 4096): 20}, started="2026-01-02T00:00:00+00:00").finish()
    for _ in range(2):  # the same record twice is one launch
        assert main(["tune", str(second), "--table", str(table)]) == 0
    made = read_table(table)
    assert [len(rule.launches) for rule in made.entries[0].rules] == [1, 2]
    assert made.choose(HERE, 4096, lambda name: True).algorithm == "vendor"
    assert "not sure" in capsys.readouterr().out


def test_what_says_nothing_about_auto_is_left_out(tmp_path):
    recorder = record(tmp_path / "r.h5", {("vendor", 4096): 20, ("auto", 4096): 1})
    for other in ({"skew": "late:1"}, {"op": "MAX"}, {"codec": "fp16"}, {"wrong": 2}):
        recorder.add({**CASE, **other}, np.full((10, 4), 1e-6))
    recorder.add({**CASE, "algorithm": "shared", "skipped": "no windows"}, None)
    recorder.finish()
    ((situation, rule),) = measurements(tmp_path / "r.h5")
    assert situation == HERE
    assert [list(timings) for timings in rule.launches.values()] == [["vendor"]]


def test_a_node_is_crowded_if_its_ranks_were_granted_fewer_cores(tmp_path):
    record(tmp_path / "r.h5", {("vendor", 4): 1}, cpus_of_rank=["0", "0", "0-3", "0-3"]).finish()
    ((situation, _),) = measurements(tmp_path / "r.h5")
    assert situation.crowded


def test_a_file_that_is_no_record_is_named(tmp_path, capsys):
    (tmp_path / "x.h5").write_text("nothing")
    assert main(["tune", str(tmp_path / "x.h5"), "--table", str(tmp_path / "t.json")]) == 2
    assert "x.h5" in capsys.readouterr().err
