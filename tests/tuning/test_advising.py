"""Advice is the best by an independent count, stays within the error budget, and says where nothing was measured."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpi_allreduce.__main__ import main
from mpi_allreduce.algorithms import get
from mpi_allreduce.bench.records import Recorder
from mpi_allreduce.simulate import Flat, Machine, simulate
from mpi_allreduce.tuning.advising import Workload, advise, change_by_computing, change_by_error, steps_needed
from mpi_allreduce.tuning.curves import Curve, Way
from tests.tuning.test_fitting import CASE

SIZES = [4**i for i in range(5, 14)]
LINES = {  # seconds of a message and of a byte, error
    ("vendor", "none"): (1e-3, 2e-9, 1e-7),
    ("ring", "none"): (2e-3, 1e-9, 1e-7),
    ("ring", "fp16"): (3e-3, 0.5e-9, 4e-4),
    ("ring", "int8"): (4e-3, 0.25e-9, 6e-3),
}
WORKLOAD = Workload({f"layer{i}": 1 << 20 for i in range(16)}, 0.05)


def ways(lines=LINES, sizes=SIZES):
    return {
        Way(*way): Curve([{n: np.array([alpha + beta * n]) for n in sizes}], error)
        for way, (alpha, beta, error) in lines.items()
    }


def brute_force(alpha, beta, layers_in_bucket):
    """An iteration of WORKLOAD, counted layer by layer."""
    end = 0.0
    for first in range(0, 16, layers_in_bucket):
        last = min(first + layers_in_bucket, 16)
        end = max(end, 0.05 * last / 16) + alpha + beta * (last - first) * (4 << 20)
    return end


@pytest.mark.parametrize(
    ("budget", "expected"), [(0, ("ring", "none")), (1e-3, ("ring", "fp16")), (1e-2, ("ring", "int8"))]
)
def test_the_answer_is_the_best_within_the_budget(budget, expected):
    advice = advise(WORKLOAD, ways(), budget)
    assert advice.best.way == expected
    alpha, beta, _ = LINES[expected]
    best = min(brute_force(alpha, beta, layers) for layers in (1, 2, 4, 8, 16))
    assert best * 0.999 <= advice.best.seconds <= best * 1.021  # as good as the best, in fewer buckets
    assert advice.best.bucket_bytes in {n << 22 for n in (1, 2, 4, 8, 16)}
    assert all(option.error <= max(budget, 1e-6) for option in advice.options)
    assert advice.runner_up.way != expected
    assert advice.runner_up.seconds >= advice.best.seconds * 0.98


def test_a_codec_that_does_not_pay_is_not_advised():
    lines = {("ring", "none"): (1e-3, 1e-9, 0), ("ring", "fp16"): (1e-3, 0.995e-9, 1e-4)}
    assert advise(WORKLOAD, ways(lines), 1.0).best.way == ("ring", "none")


def test_nothing_within_the_budget_is_an_error():
    with pytest.raises(ValueError, match=r"the least is 0\.006"):
        advise(WORKLOAD, ways({("ring", "int8"): LINES["ring", "int8"]}), 1e-3)


def test_what_would_change_the_answer_does():
    """Computing hides bandwidth, not the last bucket's latency: the longer it takes, the more latency counts."""
    lines = ways(
        {("ring", "none"): (1e-3, 1e-9, 0), ("linear", "none"): (1e-5, 2e-9, 0), ("linear", "fp16"): (0, 1e-9, 0.01)}
    )
    short = Workload({f"layer{i}": 1 << 14 for i in range(16)}, 5e-5)
    advice = advise(short, lines)
    assert advice.best.way == ("ring", "none")
    ((seconds, other),) = change_by_computing(short, lines, 0.0, advice)
    assert other.way == ("linear", "none")
    assert 5e-5 < seconds < 8e-4
    for nearby, lead in ((seconds, 1.02), (seconds / 2**0.25, 1.0)):
        ring, linear = (
            min(o.seconds for o in advise(replace(short, compute_seconds=nearby), lines).options if o.way[0] == name)
            for name in ("ring", "linear")
        )
        assert lead < ring / linear < 1.02 * lead + 0.01
    looser = change_by_error(short, lines, 0.0, advice)
    assert (looser.way, looser.error) == (("linear", "fp16"), 0.01)
    assert change_by_error(short, lines, 0.02, advise(short, lines, 0.02)) is None


def test_launches_that_differ_make_an_interval():
    """Half of the launches are twice as slow: either may be the truth."""
    slow, fast = ({n: np.full(3, k * (1e-3 + 2e-9 * n)) for n in SIZES} for k in (2, 1))
    exposed = advise(WORKLOAD, {Way("ring", "none"): Curve([slow, fast] * 3)}).best.exposed
    assert exposed.low < 0.8 * exposed.value < exposed.value < 0.9 * exposed.high


@settings(max_examples=200, deadline=None)
@given(st.floats(0, 10), st.floats(0.01, 0.9), st.floats(1e-3, 10), st.floats(0, 1))
def test_steps_are_the_fewest_that_reach_the_share(exposed, share, computing, other):
    workload = Workload({"w": 1}, computing, other)
    steps = steps_needed(workload, exposed, share)

    def share_of(k):
        return exposed / (k * (computing + other) + exposed)

    assert share_of(steps) <= share * (1 + 1e-6)
    assert steps == 1 or share_of(steps - 1) > share * (1 - 1e-6)


TRUE = Machine(alpha=1e-4, beta=2e-9, gamma=1e-10, eager_bytes=0)


def record(path, ranks=4, sizes=(1 << 14, 1 << 18, 1 << 22, 1 << 26)):
    environment = {
        "started": "2026-01-01T00:00:00+00:00", "ranks": ranks, "hosts": {f"h{r}": 1 for r in range(ranks)},
        "mpi_library": "MPICH Version:      5.0.2\n",
    }  # fmt: skip
    recorder = Recorder(path, environment, {"ci": 0.03})
    for size in sizes:
        for name in ("ring", "binomial_tree", "recursive_doubling", "vendor"):
            seconds = simulate(get("ring" if name == "vendor" else name), ranks, size, TRUE, Flat(ranks)).seconds
            case = {**CASE, "algorithm": name, "bytes": size, "ranks": ranks, "error": 1e-7}
            recorder.add(case, np.full((7, ranks), seconds * (1.3 if name == "vendor" else 1)))
    recorder.finish()
    return str(path)


def told(capsys, *arguments, status=0):
    assert main(["advise", *arguments]) == status
    out, err = capsys.readouterr()
    return out if status == 0 else err


def test_the_command_answers_and_names_the_rival_and_what_would_change_it(tmp_path, capsys):
    path = record(tmp_path / "4.h5")
    shown = told(capsys, path, "--model", "resnet50", "--compute-seconds", "0.3", "--exposed", "1")
    assert "97.49 MiB of float32 gradients in 161 parameters" in shown
    assert re.search(r"^Advice: ring, buckets of .* steps accumulated", shown, re.MULTILINE)
    assert "Runner-up: vendor" in shown
    assert "no backward pass from a sixteenth to 16 times as long" in shown
    assert "codecs, perhaps: none was measured" in shown
    assert "overlap --model resnet50 --compute-seconds 0.3 --algorithms ring" in shown
    assert "NOT MEASURED" not in shown


def test_sizes_that_were_not_measured_are_said(tmp_path, capsys):
    path = record(tmp_path / "4.h5", sizes=(1 << 10, 1 << 12))
    shown = told(capsys, path, "--parameters", "25.6M", "--compute-seconds", "0.3")
    assert re.search(r"OUTSIDE THE MEASURED RANGE: (\d+) of \1 buckets .* measured was 1 KiB to 4 KiB", shown)
    inside = told(capsys, record(tmp_path / "b.h5"), "--parameters", "25.6M", "--compute-seconds", "0.3")
    assert "OUTSIDE" not in inside


def test_another_number_of_ranks_is_scaled_by_the_model_and_said(tmp_path, capsys):
    """Of the vendor's algorithm no schedule is known."""
    few, many = record(tmp_path / "4.h5"), record(tmp_path / "16.h5", ranks=16)
    arguments = ("--parameters", "10M", "--compute-seconds", "0.01", "--ranks", "16")
    scaled, measured = told(capsys, few, *arguments), told(capsys, many, *arguments)
    assert "NOT MEASURED: there is no record of 16 ranks" in scaled
    assert "no schedules that the model knows: vendor" in scaled
    assert "16 ranks on 16 nodes" in scaled
    assert "NOT MEASURED" not in measured
    times = [float(re.search(r"accumulated .*: ([\d.e+]+) m?s an iteration", text)[1]) for text in (scaled, measured)]
    assert times[0] == pytest.approx(times[1], rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--parameters", "many", "--compute-seconds", "1"), "expected a number such as 25.6M"),
        (("--parameters", "1M", "--compute-seconds", "0"), "expected more than 0"),
        (("--parameters", "1M", "--compute-seconds", "1", "--memory", "device"), "no record of device memory"),
        (("--model", "resnet51", "--compute-seconds", "1"), "expected resnet50, bert-base"),
    ],
)
def test_what_makes_no_sense_is_an_error(tmp_path, capsys, arguments, message):
    assert message in told(capsys, record(tmp_path / "4.h5"), *arguments, status=2)


def test_records_of_two_shapes_need_a_choice(tmp_path, capsys):
    paths = record(tmp_path / "4.h5"), record(tmp_path / "16.h5", ranks=16)
    assert "choose one by --ranks" in told(capsys, *paths, "--parameters", "1M", "--compute-seconds", "1", status=2)
