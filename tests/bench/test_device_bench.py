"""The benchmark on arrays of a device: validated, timed until the device is done, and recorded as such."""

import pytest

from mpi_allreduce.__main__ import main
from mpi_allreduce.bench import read
from mpi_allreduce.codecs import device as codecs_of_devices
from mpi_allreduce.memory import arrays
from mpi_allreduce.runtime import awareness
from tests.double import Double, DoublePacking, has_device

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("aware", ["0", "1"])
def test_cases_on_a_device_are_validated_and_recorded(comm, tmp_path, monkeypatch, capsys, aware):
    monkeypatch.setenv(awareness.VARIABLE, aware)
    device = Double()
    monkeypatch.setattr(arrays, "local_device", lambda local_rank: device)
    monkeypatch.setattr(arrays, "cuda_device", lambda value: device)
    monkeypatch.setattr(codecs_of_devices, "make_packing", DoublePacking)
    path = tmp_path / "d.h5"
    options = ["--algorithms", "ring,shared,vendor,nccl,auto", "--codecs", "none,fp16", "--sizes", "64,64K"]
    few = ["--passes", "1", "--repetitions", "2", "3", "--max-seconds", "5", "--out", str(path)]
    assert main(["bench", "--memory", "device", *options, *few]) == 0
    out = capsys.readouterr().out
    if comm.rank:
        return
    assert f"double:0, MPI {'takes' if aware == '1' else 'does not take'} device pointers" in out.replace("\n", " ")
    rows = read(path)
    assert {row["memory"] for row in rows} == {"device"}
    timed = [row for row in rows if "median" in row]
    assert {(row["algorithm"], row["codec"]) for row in timed} == {
        ("ring", "none"), ("ring", "fp16"), ("shared", "none"), ("vendor", "none"), ("auto", "none"), ("auto", "fp16"),
    }  # fmt: skip
    assert all(row["wrong"] == 0 and row["identical"] for row in timed)
    assert all("CuPy has no NCCL" in row["skipped"] for row in rows if row["algorithm"] == "nccl")


@pytest.mark.skipif(has_device(), reason="there is a device")
def test_without_a_device_the_benchmark_says_so(comm, tmp_path, capsys):
    assert main(["bench", "--memory", "device", "--out", str(tmp_path / "x.h5")]) == 2
    if comm.rank == 0:
        error = capsys.readouterr().err
        assert "need CuPy: pip install" in error or "sees no CUDA device" in error
