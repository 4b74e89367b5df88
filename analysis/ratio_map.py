"""Which algorithm is best for each number of ranks and size, and how many times faster than MPI_Allreduce.

Usage: python analysis/ratio_map.py results/FILE.h5... [-o FIGURE.svg]
"""

import sys
from collections import defaultdict

import matplotlib.pyplot as plt
import numpy as np
from drawing import Part, Table, figure, program
from material import Material, Setup
from matplotlib.colors import LogNorm
from measures import Ratio, best_of_ours, ratios

from mpi_allreduce.units import format_bytes

MARKS = {"win": "*", "lose": "*", "tie": "", "undecided": "?"}
Cells = dict[Setup, dict[int, Ratio]]


def make(material: Material) -> Part:
    """A map for each machine, MPI library and way of measuring."""
    maps: dict[tuple, Cells] = defaultdict(dict)
    for setup, launches in material.setups.items():
        if best := best_of_ours(ratios(launches)):
            maps[setup.family][setup] = best
    return Part(
        name="ratio-map",
        title="Best algorithm by ranks and size",
        how_to_read="Each cell: our best algorithm there, and MPI_Allreduce's time divided by its time, in the same "
        "launches; violet is faster, orange is slower. * the difference is sure (95 %); ? fewer than six visits or "
        "launches, too few to tell. The best of several is chosen with the numbers that are shown, which flatters it a "
        "little.",
        tables=tuple(table(cells) for cells in maps.values()),
        figures=tuple(draw(family, cells) for family, cells in maps.items()),
        missing="No launch has both MPI_Allreduce and one of ours: run bench with vendor among --algorithms.",
    )


def table(cells: Cells) -> Table:
    rows = tuple(
        (setup.shape, format_bytes(size), ratio.name, str(ratio), str(ratio.launches), ratio.verdict)
        for setup, best in cells.items()
        for size, ratio in sorted(best.items())
    )
    headers = ("ranks, nodes x each", "size ", "best of ours", "vendor / ours (95 % interval) ", "launches ", "verdict")
    return Table(f"Best of ours, {next(iter(cells)).library}", headers, rows)


def draw(family: tuple, cells: Cells) -> plt.Figure:
    """Sizes downwards, numbers of ranks to the right: there are more sizes, and names need width."""
    library, machine, _, knobs, spread = family
    setups, sizes = list(cells), sorted({size for best in cells.values() for size in best})
    values = np.full((len(sizes), len(setups)), np.nan)
    for (i, size), (j, setup) in _pairs(sizes, setups):
        if size in cells[setup]:
            values[i, j] = cells[setup][size].value
    title = f"{library}, {machine}, ranks {spread}" + "".join(f", {k}={v}" for k, v in knobs)
    made, (axes,) = figure(title, 1.4 + 0.36 * len(sizes))
    reach = max(2.0, np.nanmax(np.abs(np.log2(values))))
    shades = axes.imshow(values, cmap="PuOr", norm=LogNorm(2.0**-reach, 2.0**reach), aspect="auto")
    for (i, size), (j, setup) in _pairs(sizes, setups):
        if ratio := cells[setup].get(size):
            dark = abs(np.log2(ratio.value)) > 0.55 * reach
            text = f"{_short(ratio.name, len(setups))} {ratio.value:.2f}{MARKS[ratio.verdict]}"
            axes.text(j, i, text, ha="center", va="center", color="white" if dark else "black", fontsize=8)
    axes.set_xticks(range(len(setups)), [setup.shape.replace(", ", "\n") for setup in setups])
    axes.set_yticks(range(len(sizes)), [format_bytes(size) for size in sizes])
    axes.set(xlabel="ranks, nodes x ranks on each", ylabel="bytes per rank")
    axes.grid(False)
    ticks = [2.0**power for power in range(-int(reach), int(reach) + 1)]
    bar = made.colorbar(shades, ax=axes, label="times faster than MPI_Allreduce", ticks=ticks)
    bar.ax.set_yticklabels([f"{tick:g}" for tick in ticks])
    bar.ax.minorticks_off()
    return made


def _pairs(rows: list, columns: list):
    return ((row, column) for row in enumerate(rows) for column in enumerate(columns))


def _short(name: str, columns: int) -> str:
    """Initials where columns are narrow; the table has the names."""
    return name.replace("_", " ") if columns <= 4 else "".join(word[:3] for word in name.split("_"))[:9]


if __name__ == "__main__":
    sys.exit(program(make, __doc__))
