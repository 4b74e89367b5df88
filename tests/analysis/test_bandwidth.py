"""The figure is drawn from a record alone, and holds what it must say."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from mpi_allreduce.bench.records import Recorder
from tests.bench.test_records import CASE, SECONDS

PROGRAM = Path(__file__).parents[2] / "analysis" / "bandwidth.py"
ENVIRONMENT = {"ranks": 4, "hosts": {"a": 4}, "cores_on_host": 8, "cpu": "CPU", "mpi_library": "Open MPI v5.0.1, x"}
SETTINGS = {
    "op": "SUM",
    "dtype": "float32",
    "in_place": False,
    "mode": "isolated",
    "buffers": 0,
    "skew": "none",
    "data": "x",
}


def test_figure_shows_every_algorithm_every_size_and_where_it_was_measured(tmp_path):
    recorder = Recorder(tmp_path / "r.h5", {**ENVIRONMENT, "started": "2026-01-02T03:04:05+00:00"}, SETTINGS)
    for algorithm in ("ring", "vendor"):
        for size in (4, 1 << 20):
            recorder.add({**CASE, "algorithm": algorithm, "bytes": size}, SECONDS)
    recorder.add({**CASE, "algorithm": "vendor_persistent", "skipped": "needs MPI 4"}, None)
    command = [sys.executable, PROGRAM, tmp_path / "r.h5", "-o", tmp_path / "figure.svg"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "figure.svg").read_text()
    ElementTree.fromstring(text)
    comments = [line.strip() for line in text.splitlines() if line.strip().startswith("<!--")]  # the words drawn
    drawn = " ".join(comments)
    for words in ("ring", "vendor", "4 B", "1 MiB", "Open MPI 5.0.1", "4 ranks on 1 host", "2026-01-02", "GB/s"):
        assert words in drawn
    assert "vendor_persistent" not in drawn
