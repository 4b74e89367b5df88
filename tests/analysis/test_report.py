"""The page holds what the records say, in figures that are not empty, and needs nothing else."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from importlib import import_module
from pathlib import Path

import h5py
import numpy as np
import pytest
from drawing import program
from material import Material, load
from measures import ratios
from report import PARTS, main

from mpi_allreduce.overlap import Timeline
from mpi_allreduce.overlap.reading import FORMAT, read_overlap
from tests.analysis.launches import ENVIRONMENT, record

SIZES = (1024, 16384, 1 << 20)
ANALYSIS = Path(__file__).parents[2] / "analysis"
EPOCH = [("number", "i8"), ("loss", "f8"), ("accuracy", "f8"), ("sent_bytes", "i8"), ("seconds", "f8"),
         ("exposed_seconds", "f8"), ("digest", "i8")]  # fmt: skip


def bench(path, ranks=4, **how):
    """MPI_Allreduce takes twice the ring's time, but half of it at 1 KiB; the int8 ring takes longest."""
    seconds = {}
    for size in SIZES:
        seconds |= {
            ("ring", size): size * 1e-8,
            ("circulant", size): size * 1.1e-8,
            ("ring", size, "int8"): size * 3e-8,
        }
        seconds["vendor", size] = size * (0.5e-8 if size == 1024 else 2e-8)
    return record(path, seconds, {"ranks": ranks, "hosts": {"a": ranks}}, **how)


def overlap(path):
    """One launch with two cases, and two trainings, in the layout that is documented."""
    timeline = Timeline()
    for at, (kind, bucket) in enumerate([("ready", 0), ("start", 0), ("end", 0), ("wait", -1), ("done", -1)]):
        timeline.add(0, kind, bucket, "w" * (kind == "ready"), at * 1e-3)
    with h5py.File(path, "w") as file:
        file.attrs["format"] = FORMAT
        group = file.create_group("overlap-0001")
        group["environment"] = json.dumps(ENVIRONMENT)
        group["settings"] = json.dumps({"model": "mlp:5,5", "computing": "paced"})
        for number, mode in enumerate(("test", "blocking")):
            case = group.create_group(f"00{number} ring none {mode}")
            case.attrs.update({
                "algorithm": "ring", "codec": "none", "mode": mode, "bucket_bytes": 1024, "layers": 0, "probes": 4,
                "compute_seconds": 0.01, "iteration": 0.02, "low": 0.019, "high": 0.021, "computing": 0.01,
                "communicating": 0.01, "buckets": 1, "sent_bytes": 10, "exposed": 0.01, "ideal_exposed": 0.002,
                "share": 0.5, "of_ideal": 0.5, "osu": 50.0, "imb": 50.0,
            })  # fmt: skip
            for name in ("seconds", "computing", "bucket_seconds"):
                case[name] = np.ones((3, 4))
            (timeline if mode == "test" else Timeline()).save(case.create_group("timeline/0"))
        trained = file.create_group("train-0001")
        trained["environment"] = json.dumps(ENVIRONMENT)
        settings = {
            "data": "digits", "network": "mlp", "batch": 8, "rate": 0.1, "momentum": 0.9, "accumulate": 1, "delay": 0,
            "error_feedback": False, "momentum_correction": False, "algorithm": "auto",
        }  # fmt: skip
        for number, (codec, seed) in enumerate([("none", 1), ("none", 2), ("int8", 1)], 1):
            one = trained.create_group(f"000{number}")
            one.attrs["name"] = codec
            one["settings"] = json.dumps({**settings, "codec": codec, "seed": seed})
            one["epochs"] = np.array([(e, 1 / e, 0.5 + e / 10, 1000, 1.0, 0.1, 7) for e in (1, 2, 3)], EPOCH)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records of every kind, good and bad, and the page about them."""
    folder = tmp_path_factory.mktemp("report")
    files = [bench(folder / "4.h5"), bench(folder / "2.h5", ranks=2, launches=1), overlap(folder / "overlap.h5")]
    (folder / "text.h5").write_text("no HDF5")
    whole = files[0].read_bytes()
    (folder / "cut.h5").write_bytes(whole[: len(whole) // 2])
    with h5py.File(folder / "other.h5", "w") as file:
        file["x"] = 1
    with h5py.File(files[1], "a") as file:
        file.copy("launch-0001", "launch-0002")
        del file["launch-0002/environment"]
        file["launch-0002/environment"] = "{}"
    files += [folder / "text.h5", folder / "cut.h5", folder / "other.h5", folder / "none.h5"]
    command = [sys.executable, ANALYSIS / "report.py", *files, "-o", folder / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "stderr").write_text(done.stderr)
    return folder


def test_page_says_who_wins_where_and_by_how_much(folder):
    page = (folder / "out" / "index.html").read_text()
    summary = page[: page.index("<nav>")]
    for ranks in (2, 4):
        line = next(line for line in summary.splitlines() if f"<li>{ranks} ranks, 1 x {ranks}, MPICH 5.0.2" in line)
        assert "ours are faster at 16 KiB - 1 MiB; MPI_Allreduce is faster at 1 KiB" in line
        best, worst = (float(found) for found in re.findall(r"At \w+ ([\d.]+) x as fast", line))
        assert (best, worst) == (pytest.approx(2, rel=0.03), pytest.approx(0.5, rel=0.03))
    assert "mlp:5,5 on 4 ranks" in summary
    assert "3 launches" in summary


def test_what_could_not_be_read_is_told_on_the_page_and_on_stderr(folder):
    page, told = (folder / "out" / "index.html").read_text(), (folder / "stderr").read_text()
    for name in ("text.h5", "cut.h5", "other.h5", "none.h5", "2.h5 launch-0002"):
        assert name in told
        assert name in page[page.index("Left out") : page.index("<nav>")]
    assert "Traceback" not in told


def test_page_needs_nothing_else(folder):
    page = (folder / "out" / "index.html").read_text()
    linked = re.findall(r"""(?:src|href|url\(|data|action)\s*[=(]?\s*["']?([^"'\s)>]+)""", page)
    assert not [link for link in linked if link.startswith(("http", "//"))]
    assert not re.search(r"<(script|link|iframe|img|object|embed)|@import", page)
    names = re.findall(r'\bid="([^"]+)"', page)
    assert len(names) == len(set(names))
    assert {link[1:] for link in re.findall(r'href="(#[^"]+)"', page)} <= set(names)
    for file in re.findall(r'<a href="([^#"]+)"', page):
        assert (folder / "out" / file).stat().st_size > 1000


def test_every_part_has_its_figures_and_none_is_empty(folder):
    page = (folder / "out" / "index.html").read_text()
    drawn = {path.stem.rpartition("-")[0] for path in (folder / "out").glob("*.svg")}
    assert drawn == {
        "bandwidth", "ratio-map", "crossovers", "scaling", "codecs", "skew", "overlap", "training",
    }  # fmt: skip
    for path in (folder / "out").glob("*.svg"):
        marks = ElementTree.parse(path).iter()
        kinds = [element.tag.rpartition("}")[2] for element in marks]
        assert kinds.count("path") + kinds.count("use") > 30, path
        assert path.with_suffix(".png").stat().st_size > 5000
    assert page.count("<figure>") == page.count("<svg") == len(list((folder / "out").glob("*.svg")))


def test_ratios_are_of_one_launch_each(tmp_path):
    """Launch by launch the ring is twice as fast, while launches differ by far more than that."""
    for number, level in enumerate((1.0, 10.0, 100.0)):
        record(tmp_path / "r.h5", {("ring", 1024): level, ("vendor", 1024): 2 * level}, launches=1, seed=number)
    found = ratios(load([tmp_path / "r.h5"]).launches)["ring", 1024]
    assert (found.value, found.launches, found.verdict) == (pytest.approx(2, rel=0.05), 3, "win")
    assert 1.9 < found.low <= found.high < 2.1


@pytest.mark.parametrize(
    "changed",
    [{"mpi_library": "Open MPI v5.0.1, x"}, {"hosts": {"a": 2, "b": 2}}, {"cpu": "another"},
     {"variables": {"MPIR_CVAR_A": "2"}}, {"bound_by": "SLURM"}],
)  # fmt: skip
def test_other_libraries_shapes_machines_and_settings_are_not_mixed(tmp_path, changed):
    record(tmp_path / "r.h5", {("ring", 1024): 1.0}, launches=1)
    record(tmp_path / "r.h5", {("ring", 1024): 2.0}, changed, launches=1)
    assert len(load([tmp_path / "r.h5"]).setups) == 2


def test_wrong_results_are_left_out_and_told(tmp_path, capsys):
    bench(tmp_path / "r.h5")
    record(tmp_path / "r.h5", {("swing", 1024): 1e-9}, launches=1, facts={"wrong": 3})
    assert main([str(tmp_path / "r.h5"), "-o", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "index.html").read_text()
    assert "WRONG results, left out of everything: swing, 1024 B (r.h5 launch-0004)" in page
    assert page.count("swing") == 1


def test_status_2_where_nothing_can_be_read(tmp_path, capsys):
    assert main([str(tmp_path / "none.h5"), "-o", str(tmp_path / "out")]) == 2
    assert "there is no such file" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", PARTS)
def test_a_part_alone_prints_its_tables_and_says_so_where_it_has_none(folder, name, monkeypatch, capsys, tmp_path):
    module = import_module(name)
    assert module.make(Material()).missing
    assert not module.make(Material()).figures
    files = [str(folder / file) for file in ("4.h5", "2.h5", "overlap.h5")]
    monkeypatch.setattr(sys, "argv", [name, *files, "-o", str(tmp_path / "f.png")])
    part = module.make(load(map(Path, files)))
    assert program(module.make, module.__doc__) == (0 if part.tables else 1)
    out = capsys.readouterr().out
    assert all(table.rows[0][0] in out for table in part.tables)
    assert (tmp_path / "f.png").exists() == bool(part.figures)


def test_reports_need_no_mpi(folder):
    code = f"import sys; sys.modules['mpi4py'] = None; sys.path.insert(0, {str(ANALYSIS)!r}); import report, compare; "
    code += f"from material import load; assert load([{str(folder / 'overlap.h5')!r}]).overlaps"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ANALYSIS.parent)


def test_a_timeline_comes_back(folder):
    (launch,) = read_overlap(folder / "overlap.h5")
    events = launch.cases[0]["timelines"][0].events
    assert [(event.kind, event.bucket, round(event.seconds * 1e3)) for event in events] == [
        ("ready", 0, 0), ("start", 0, 1), ("end", 0, 2), ("wait", -1, 3), ("done", -1, 4),
    ]  # fmt: skip
    assert launch.cases[0]["raw"]["seconds"].shape == (3, 4)
    assert events[0].name == "w"
