"""How times grow with the number of ranks: a panel for each of a few sizes.

Usage: python analysis/scaling.py results/FILE.h5... [-o FIGURE.svg]
"""

import sys
from collections import defaultdict
from collections.abc import Sequence

import matplotlib.pyplot as plt
from drawing import Part, Table, figure, program, spread, styles, us
from material import Launch, Material, Setup
from measures import combined, exact

from mpi_allreduce.units import format_bytes

PANELS = 4
Sweep = dict[Setup, list[Launch]]


def make(material: Material) -> Part:
    """A figure for each machine and library with at least two numbers of ranks."""
    families: dict[tuple, Sweep] = defaultdict(dict)
    for setup, launches in material.setups.items():
        families[setup.family][setup] = launches
    sweeps = {family: sweep for family, sweep in families.items() if len(sweep) > 1}
    style = styles(material.labels)
    return Part(
        name="scaling",
        title="Scaling with the number of ranks",
        how_to_read="Times of a few sizes against the number of ranks; bars are 95 % intervals. A line joins ranks on "
        "one node, or nodes with the same number of ranks on each, never both. A bandwidth-bound algorithm is flat.",
        tables=tuple(table(family, sweep) for family, sweep in sweeps.items()),
        figures=tuple(draw(family, sweep, style) for family, sweep in sweeps.items()),
        missing="One number of ranks for each machine and library: record bench with several.",
    )


def _title(family: tuple) -> str:
    library, machine, _, knobs, where = family
    return f"{library}, {machine}, ranks {where}" + "".join(f", {k}={v}" for k, v in knobs)


def _lines(sweep: Sweep) -> dict[tuple[int, str], list[dict]]:
    """Rows by number of ranks, for each size and algorithm."""
    lines = defaultdict(list)
    for launches in sweep.values():  # setups are in the order of nodes and ranks
        for row in exact(combined(launches)):
            lines[row["bytes"], row["algorithm"]].append(row)
    return {key: rows for key, rows in sorted(lines.items()) if len(rows) > 1}


def table(family: tuple, sweep: Sweep) -> Table:
    lines = _lines(sweep)
    rows = tuple(
        (format_bytes(size), name, *(us(found[n]) if n in found else "-" for n in _ranks(sweep)))
        for (size, name), points in lines.items()
        for found in [{row["ranks"]: row["median"] for row in points}]
    )
    return Table(f"Median us; {_title(family)}", ("size ", "algorithm", *(f"{n} ranks " for n in _ranks(sweep))), rows)


def _ranks(sweep: Sweep) -> list[int]:
    return [setup.ranks for setup in sweep]


def draw(family: tuple, sweep: Sweep, style: dict[str, dict]) -> plt.Figure:
    lines = _lines(sweep)
    sizes = _some(sorted({size for size, _ in lines}), PANELS)
    deep = -(-len(sizes) // 2)
    made, panels = figure(_title(family), 1.5 + 2.6 * deep, deep, 2, sharex=True)
    for axes, size in zip(panels, sizes, strict=False):
        for name, look in style.items():
            rows = lines.get((size, name), [])
            ranks, middle = [row["ranks"] for row in rows], [row["median"] * 1e6 for row in rows]
            bars = spread(middle, [row["low"] * 1e6 for row in rows], [row["high"] * 1e6 for row in rows])
            if rows:
                axes.errorbar(ranks, middle, bars, label=name, **look)
        axes.set(title=format_bytes(size), xscale="log", yscale="log", ylabel="time, us")
        axes.set_xticks(_ranks(sweep), _ranks(sweep))
        axes.xaxis.minorticks_off()
    for axes in panels[len(sizes) :]:
        axes.set_axis_off()
    for axes in panels[-2:]:
        axes.set_xlabel("ranks")
    shown = {text: line for axes in panels for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    made.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=4)
    return made


def _some(values: Sequence[int], number: int) -> list[int]:
    """So many at most, from the first to the last, evenly."""
    if len(values) <= number:
        return list(values)
    return [values[round(i * (len(values) - 1) / (number - 1))] for i in range(number)]


if __name__ == "__main__":
    sys.exit(program(make, __doc__))
