"""Time, bus bandwidth and speed-up against message size, of every algorithm and of MPI_Allreduce, with intervals.

Usage: python analysis/bandwidth.py results/FILE.h5... [--launch launch-0001] [-o FIGURE.svg]
Needs the extra [analysis], no MPI.
"""

import sys
from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from drawing import Part, Table, figure, program, size_axis, spread, styles, us
from material import Launch, Material, Setup
from measures import combined, exact, ratios, units

from mpi_allreduce.units import format_bytes


def make(material: Material) -> Part:
    """A figure and a table for each setup."""
    style = styles(material.labels)
    return Part(
        name="bandwidth",
        title="Time and bandwidth against size",
        how_to_read="Bars are 95 % intervals of the median; one that leaves the panel is longer than "
        "shown, the table has it. Bus bandwidth is bytes / time x 2(p-1)/p, comparable with "
        "a link's speed whatever the number of ranks. Above 1 in the last panel: faster than MPI_Allreduce of the same "
        "launch.",
        tables=tuple(table(setup, launches) for setup, launches in material.setups.items()),
        figures=tuple(draw(launches, style) for launches in material.setups.values()),
        missing="No timed cases on two ranks or more: run bench.",
    )


def table(setup: Setup, launches: Sequence[Launch]) -> Table:
    found = ratios(launches)
    rows = tuple(
        (
            format_bytes(row["bytes"]), row["algorithm"], us(row["median"]),
            f"{us(row['low'])} .. {us(row['high'])}", f"{row['busbw'] / 1e9:.3g}",
            str(found.get((row["algorithm"], row["bytes"]), "")), str(row["launches"]),
        )
        for row in exact(combined(launches))
    )  # fmt: skip
    headers = (
        "size ",
        "algorithm",
        "median us ",
        "95 % interval us ",
        "bus bandwidth GB/s ",
        "vendor / ours ",
        "launches ",
    )
    return Table(f"{setup}; {units(launches)}", headers, rows)


def draw(launches: Sequence[Launch], style: dict[str, dict]) -> plt.Figure:
    """Three panels that share the axis of sizes."""
    title = f"{launches[0].title}, {launches[-1].started[:10]}; {units(launches)}"
    made, (times, rates, gains) = figure(title, 9.5, rows=3, sharex=True, height_ratios=(3, 3, 2))
    rows, found = exact(combined(launches)), ratios(launches)
    names = [name for name in style if any(row["algorithm"] == name for row in rows)]
    for number, name in enumerate(names):
        here = [row for row in rows if row["algorithm"] == name]
        mine = [ratio for row in here if (ratio := found.get((name, row["bytes"])))]
        aside = 2 ** (0.5 * ((number + 0.5) / len(names) - 0.5))  # bars beside each other
        look = {**style[name], "label": name, "elinewidth": 0.7}
        per_us = [(row["bytes"], row["median"] * 1e6, row["low"] * 1e6, row["high"] * 1e6) for row in here]
        work = [row["busbw"] * row["median"] * 1e-3 for row in here]  # GB/s x us
        per_s = [(size, w / m, w / high, w / low) for w, (size, m, low, high) in zip(work, per_us, strict=True)]
        gain = [(ratio.bytes, ratio.value, ratio.low, ratio.high) for ratio in mine]
        for axes, points in ((times, per_us), (rates, per_s), (gains, gain)):
            if points:
                sizes, middle, low, high = map(np.array, zip(*points, strict=True))
                axes.errorbar(sizes * aside, middle, spread(middle, low, high), **look)
    for axes, text in (
        (times, "time, us"),
        (rates, "bus bandwidth, GB/s"),
        (gains, "times faster than\nMPI_Allreduce"),
    ):
        axes.set(yscale="log", ylabel=text)
        around_points(axes)
    gains.axhline(1, color="black", linewidth=0.8)
    plain_ticks(gains)
    size_axis(gains, [row["bytes"] for row in rows])
    made.legend(*times.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return made


def around_points(axes: plt.Axes, room: float = 2.0) -> None:
    """Limits by the points: one launch on a disturbed machine must not make a flat line of all that matters."""
    points = np.concatenate([container[0].get_ydata() for container in axes.containers] or [[1.0]])
    axes.set_ylim(points.min() / room, points.max() * room)


def plain_ticks(axes: plt.Axes) -> None:
    """1/4, 1/2, 1, 2, 4 ... as numbers, on a logarithmic axis of ratios."""
    low, high = axes.get_ylim()
    ticks = [2.0**power for power in range(-12, 13) if low <= 2.0**power <= high]
    axes.set_yticks(ticks, [f"{tick:.3g}" for tick in ticks])
    axes.minorticks_off()


if __name__ == "__main__":
    sys.exit(program(make, __doc__))
