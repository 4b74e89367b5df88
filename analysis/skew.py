"""How unequal ranks are: how long before the slowest one each of them is done, and who is last.

Usage: python analysis/skew.py results/FILE.h5... [-o FIGURE.svg]
"""

import sys
from collections import defaultdict
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from drawing import Part, Table, figure, program
from material import Launch, Material, Setup
from measures import exact

from mpi_allreduce.units import format_bytes


def make(material: Material) -> Part:
    """Two panels for each setup: its smallest and its largest size."""
    found = {setup: early(launches) for setup, launches in material.setups.items()}
    return Part(
        name="skew",
        title="Ranks beside each other",
        how_to_read="How much earlier than the slowest rank each rank was done, in per cent of the repetition's time; "
        "the median over repetitions, then over launches. Dark: this rank waits for nobody and is done early; a row "
        "that is pale throughout: all ranks end together.",
        tables=tuple(table(setup, cases) for setup, cases in found.items()),
        figures=tuple(draw(setup, cases) for setup, cases in found.items()),
        missing="No timed cases on two ranks or more: run bench.",
    )


def early(launches: Sequence[Launch]) -> dict[tuple[int, str], tuple[np.ndarray, np.ndarray]]:
    """By size and algorithm: how early each rank is, as a fraction, and how often it is the last."""
    found = defaultdict(list)
    for launch in launches:
        for row in exact(launch.rows):
            ends = row["seconds"] if row["delays"] is None else row["seconds"] + row["delays"]
            last = ends.max(axis=1, keepdims=True)
            lag = np.median((last - ends) / last, axis=0)
            found[row["bytes"], row["algorithm"]].append((lag, (ends == last).mean(axis=0)))
    return {
        key: tuple(np.median(parts, axis=0) for parts in zip(*cases, strict=True))
        for key, cases in sorted(found.items())
    }


def table(setup: Setup, cases: dict) -> Table:
    rows = tuple(
        (format_bytes(size), name, f"{lag.max():.0%}", f"{lag.argmax()}", f"{often.argmax()}", f"{often.max():.0%}")
        for (size, name), (lag, often) in cases.items()
    )
    headers = ("size ", "algorithm", "earliest is early by ", "rank ", "most often last: rank ", "of repetitions ")
    return Table(str(setup), headers, rows)


def draw(setup: Setup, cases: dict) -> plt.Figure:
    sizes = sorted({size for size, _ in cases})
    sizes = sizes[:1] + sizes[1:][-1:]
    names = [[name for size, name in cases if size == wanted] for wanted in sizes]
    height = 1.6 + sum(0.5 + 0.22 * len(here) for here in names)
    ratios = [len(here) for here in names]
    made, panels = figure(
        f"Done before the slowest rank: {setup}", height, len(sizes), sharex=True, height_ratios=ratios
    )
    for axes, size, here in zip(panels, sizes, names, strict=True):
        values = np.array([cases[size, name][0] for name in here]) * 100
        shades = axes.imshow(values, cmap="Blues", vmin=0, vmax=100, aspect="auto")
        if setup.ranks <= 16:
            for (i, j), value in np.ndenumerate(values):
                colour = "white" if value > 60 else "black"
                axes.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=7, color=colour)
        axes.set_yticks(range(len(here)), here)
        axes.set_title(format_bytes(size))
        axes.grid(False)
    panels[-1].set_xlabel("rank")
    panels[-1].xaxis.get_major_locator().set_params(integer=True)
    made.colorbar(shades, ax=panels, label="earlier than the slowest, %")
    return made


if __name__ == "__main__":
    sys.exit(program(make, __doc__))
