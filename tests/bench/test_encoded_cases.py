"""Encoded cases of the benchmark: what they sent, how long the codec took, whether errors are within the bound."""

import numpy as np
import pytest

from mpi_allreduce.bench.settings import Settings, all_cases
from mpi_allreduce.codecs import Packer, codec_names, get_codec
from mpi_allreduce.simulate import wire_bytes

pytestmark = pytest.mark.mpi

QUICK = Settings(
    algorithms=("ring", "pairwise", "hierarchical", "vendor", "shared"),
    sizes=(4, 100_000),
    dtype=np.dtype("f4"),
    max_seconds=1.0,
    probe_seconds=0.0,
    passes=1,
    repetitions=(3, 20),
    codecs=("none", "fp16", "int8", "randomk:0.1", "threshold:0.01", "powersgd:2"),
)


@pytest.mark.parametrize(
    "changes", [{}, {"op": "AVG", "in_place": True}, {"dtype": np.dtype("f8"), "mode": "streaming"}]
)
def test_encoded_cases_are_recorded_with_bytes_bound_and_seconds(bench, comm, changes):
    right, rows, _, out = bench(**changes)
    assert right
    cases = {(row["algorithm"], row["codec"]) for row in rows}
    assert cases == {(c.algorithm, c.codec) for c in all_cases(QUICK)}
    assert ("vendor", "fp16") not in cases
    assert ("shared", "fp16") not in cases
    for row in rows:
        assert row["wrong"] == 0
        assert row["identical"]
        if row["codec"] == "none":
            assert "wire_bytes" not in row
            continue
        assert row["error"] <= row["bound"]
        assert row["encode_seconds"] >= 0
        codec = get_codec(row["codec"])
        if row["algorithm"] in ("ring", "pairwise") and row["codec"] in ("fp16", "int8"):
            predicted = [
                wire_bytes(row["algorithm"], codec, rank, comm.size, row["count"], row["bytes"] // row["count"])
                for rank in range(comm.size)
            ]
            assert row["wire_bytes"] == max(predicted)
    if comm.rank == 0:
        assert "Every result is right" in out
        assert "pays below" in out
        assert comm.size == 1 or "Codecs beside the same algorithm without one, at" in out


def test_errors_beyond_the_bound_count_as_wrong(bench, comm, monkeypatch):
    if comm.size == 1:
        pytest.skip("a single rank decodes nothing")
    decode = Packer.decode

    def enlarge(self, wire, out, first):
        decode(self, wire, out, first)
        out *= np.float32(1.1)

    monkeypatch.setattr(Packer, "decode", enlarge)
    right, rows, _, _ = bench(algorithms=("pairwise",), codecs=("fp16",), sizes=(4000,))
    assert not right
    assert rows[0]["wrong"] == comm.size * 1000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codecs": ("fp15",)}, "unknown name 'fp15'"),
        ({"codecs": ("fp16",), "op": "MAX"}, "with op SUM or AVG, not with MAX"),
        ({"codecs": ("fp16",), "dtype": np.dtype("i4")}, "encodes floating-point numbers, not int32"),
        ({"codecs": ("fp16",), "algorithms": ("vendor",)}, "none of the algorithms vendor can use fp16"),
    ],
)
def test_codecs_that_cannot_be_used_are_refused(bench, changes, message):
    with pytest.raises(ValueError, match=message):
        bench(**changes)


def test_all_names_every_codec():
    from mpi_allreduce.bench.command import _codecs

    assert _codecs("all") == ("none", *codec_names())
    assert _codecs("none,int8:block=64+stochastic") == ("none", "int8:block=64,stochastic")
