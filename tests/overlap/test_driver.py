"""The overlap experiment on real ranks: every way of reducing, recorded with its parts and a trace."""

import json

import h5py
import numpy as np
import pytest
from mpi4py import MPI

from mpi_allreduce.__main__ import main

pytestmark = pytest.mark.mpi

QUICK = [
    "overlap", "--model", "mlp:50,40,10", "--algorithms", "ring,vendor", "--codecs", "none,fp16", "--bucket-bytes",
    "4K", "--layers", "1", "--iterations", "2", "--passes", "2", "--probes", "2", "--compute-seconds", "0.002,0.004",
]  # fmt: skip


@pytest.mark.parametrize("computing", ["paced", "real"])
def test_every_case_is_measured_and_recorded(comm, tmp_path_factory, capsys, computing):
    folder = comm.bcast(tmp_path_factory.mktemp("overlap") if comm.rank == 0 else None)
    path, trace = folder / "o.h5", folder / "t.json"
    modes = "blocking,none,test" + (",thread" if MPI.Query_thread() == MPI.THREAD_MULTIPLE else "")
    options = ["--modes", modes, "--computing", computing, "--out", str(path), "--trace", str(trace)]
    for _ in range(2):
        assert main(QUICK + options) == 0
    out = capsys.readouterr().out
    if comm.rank:
        assert out == ""
        return
    number = modes.count(",") + 1
    with h5py.File(path) as file:
        assert sorted(file) == ["overlap-0001", "overlap-0002"]
        cases = [group for group in file["overlap-0001"].values() if isinstance(group, h5py.Group)]
        # Two lengths, two sizes of buckets; the vendor sends only plain numbers.
        assert len(cases) == 2 * 2 * (2 * number + number)
        for case in cases:
            assert case["seconds"].shape == case["computing"].shape == (4, comm.size)
            assert case["bucket_seconds"].shape == (4, case.attrs["buckets"])
            assert case.attrs["computing"] >= (case.attrs["compute_seconds"] * 0.9 if computing == "paced" else 0)
            slowest = case["seconds"][()].max(axis=1)
            assert slowest.min() <= case.attrs["iteration"] <= slowest.max()
            assert json.loads(case["trace"][()])["traceEvents"]
            events = case[f"timeline/{comm.size - 1}/events"][()]
            assert (np.diff(events["seconds"]) >= 0).all()
            assert {b"wait", b"done"} <= set(events["kind"]) or case.attrs["mode"] == "blocking"
        assert {case.attrs["layers"] for case in cases} == {0, 1}
    assert json.loads(trace.read_text())["traceEvents"]
    assert out.count("Backward pass of ") == 4
    fractions = out.split("as a fraction of that with ring none blocking, 1 layers")[1].splitlines()[2:]
    assert fractions[0].split()[-2:] == ["1.00", "1.00"]
    assert "Record: " in out


def test_what_makes_no_sense_is_refused(comm, tmp_path):
    assert main([*QUICK, "--modes", "magic", "--out", str(tmp_path / "x.h5")]) == 2
    assert main([*QUICK, "--ratio", "0", "--compute-seconds", "", "--out", str(tmp_path / "x.h5")]) == 2
    assert main(["overlap", "--model", "rnn", "--out", str(tmp_path / "x.h5")]) == 2
