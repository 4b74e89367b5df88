"""What codecs cost in training: loss and accuracy by epoch, and by what was sent; records of ``train``.

Usage: python analysis/learning.py results/train-FILE.h5... [-o FIGURE.svg]
"""

import sys
from collections import defaultdict
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from drawing import Part, Table, figure, program, styles
from material import Material

from mpi_allreduce.library import library_name
from mpi_allreduce.overlap.reading import Training

# What is trained: of different values nothing can be compared.  All else is how gradients are reduced.
_TASK = ("data", "network", "batch", "rate")
Ways = dict[str, list[Training]]


def make(material: Material) -> Part:
    """A figure and a table for each task."""
    tasks: dict[str, Ways] = defaultdict(lambda: defaultdict(list))
    for training in material.trainings:
        if len(training.epochs):
            tasks[_task(training)][_way(training)].append(training)
    return Part(
        name="training",
        title="Training",
        how_to_read="The middle of all seeds, and their range as a band. Accuracy is that on test images; bytes are "
        "those of messages that rank 0 sent, in all: ranks that share memory send none, and are not in the last panel.",
        tables=tuple(table(task, ways) for task, ways in tasks.items()),
        figures=tuple(draw(task, ways) for task, ways in tasks.items()),
        missing="No records of train: run mpirun ... python -m mpi_allreduce train --out results/train.h5.",
    )


def _task(training: Training) -> str:
    what = ", ".join(f"{key} {training.settings[key]}" for key in _TASK)
    return f"{training.environment['ranks']} ranks, {library_name(training.environment['mpi_library'])}; {what}"


def _way(training: Training) -> str:
    """What is not as it would be by default."""
    s = training.settings
    usual = {"error_feedback": False, "momentum_correction": False, "accumulate": 1, "delay": 0, "momentum": 0.9}
    words = [
        s["codec"] if s["codec"] != "none" else "no codec",
        *([s["algorithm"]] if s["algorithm"] != "auto" else []),
    ]
    for key, value in usual.items():
        if s[key] != value:
            words.append(key.replace("_", " ") + ("" if s[key] is True else f" {s[key]}"))
    return ", ".join(words)


def _together(trainings: Sequence[Training], field: str) -> np.ndarray:
    """[training, epoch], as far as all of them came; some may have been killed."""
    length = min(len(training.epochs) for training in trainings)
    return np.array([training.epochs[field][:length] for training in trainings], float)


def table(task: str, ways: Ways) -> Table:
    rows = []
    for way, trainings in ways.items():
        loss, accuracy = (_together(trainings, field) for field in ("loss", "accuracy"))
        seconds, exposed = (np.median(_together(trainings, key).sum(axis=1)) for key in ("seconds", "exposed_seconds"))
        sent = np.median(_together(trainings, "sent_bytes").sum(axis=1))
        low, high = accuracy[:, -1].min(), accuracy[:, -1].max()
        rows.append((
            way, str(len(trainings)), str(accuracy.shape[1]), f"{np.median(loss[:, -1]):.4f}",
            f"{np.median(accuracy[:, -1]):.4f}", f"{low:.4f} .. {high:.4f}" if len(trainings) > 1 else "-",
            f"{sent / 1024:.0f}", f"{seconds:.2f}", f"{exposed:.2f}",
        ))  # fmt: skip
    headers = (
        "how gradients were reduced", "seeds ", "epochs ", "loss ", "accuracy ", "range ", "KiB sent ", "seconds ",
        "exposed ",
    )  # fmt: skip
    return Table(task, headers, tuple(rows))


def draw(task: str, ways: Ways) -> plt.Figure:
    made, (losses, accuracies, sent) = figure(task, 9.0, rows=3)
    for way, look in styles(list(ways)).items():
        trainings = ways[way]
        epochs = _together(trainings, "number")[0]
        kib = np.median(_together(trainings, "sent_bytes").cumsum(axis=1), axis=0) / 1024
        loss, accuracy = (_together(trainings, field) for field in ("loss", "accuracy"))
        for axes, x, values in ((losses, epochs, loss), (accuracies, epochs, accuracy), (sent, kib, accuracy)):
            axes.plot(x, np.median(values, axis=0), label=way, **look)
            if len(trainings) > 1:
                axes.fill_between(x, values.min(axis=0), values.max(axis=0), color=look["color"], alpha=0.15)
    losses.set(yscale="log", ylabel="training loss", xlabel="epoch")
    accuracies.set(ylabel="accuracy on test images", xlabel="epoch")
    sent.set(xscale="log", ylabel="accuracy on test images", xlabel="KiB sent by rank 0")
    made.legend(*losses.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return made


if __name__ == "__main__":
    sys.exit(program(make, __doc__))
