"""Time against error of every codec and algorithm, and which of them no other one beats in both.

Usage: python analysis/pareto.py results/FILE.h5... [-o FIGURE.svg]
"""

import sys
from collections.abc import Sequence

import matplotlib.pyplot as plt
from drawing import Part, Table, figure, program, spread, styles, us
from material import Launch, Material, Setup, label
from measures import combined, ratios, units

from mpi_allreduce.codecs import NONE
from mpi_allreduce.units import format_bytes

PANELS = 3


def make(material: Material) -> Part:
    """A figure and a table for each setup in which codecs were timed, of those launches only."""
    setups = {
        setup: encoding
        for setup, launches in material.setups.items()
        if (encoding := [launch for launch in launches if any(row["codec"] != NONE for row in launch.rows)])
    }
    codecs = sorted({row["codec"] for found in setups.values() for launch in found for row in launch.rows} - {NONE})
    style = styles([NONE, *codecs])
    return Part(
        name="codecs",
        title="Codecs: time against error",
        how_to_read="Each point is an algorithm with a codec; to the left is exacter, below is faster. The dashed line "
        "joins those that no other one beats in both (the Pareto front), with their names. Errors are relative L2 "
        "norms against the exact sum; bars are 95 % intervals of the time.",
        tables=tuple(table(setup, launches) for setup, launches in setups.items()),
        figures=tuple(draw(setup, launches, style) for setup, launches in setups.items()),
        missing="No codecs in these records: run bench with --codecs none,fp16,int8.",
    )


def front(rows: Sequence[dict]) -> list[dict]:
    """The rows that none is at least as fast and as exact as, by error; without a codec all are as exact."""
    best: list[dict] = []
    for row in sorted(rows, key=lambda row: (row["error"] * (row["codec"] != NONE), row["median"])):
        if not best or row["median"] < best[-1]["median"]:
            best.append(row)
    return best


def _by_size(launches: Sequence[Launch]) -> dict[int, list[dict]]:
    """Rows of sizes that have codecs."""
    rows = combined(launches)
    sizes = sorted({row["bytes"] for row in rows if row["codec"] != NONE})
    return {size: [row for row in rows if row["bytes"] == size] for size in sizes}


def table(setup: Setup, launches: Sequence[Launch]) -> Table:
    found, rows = ratios(launches), []
    for size, here in _by_size(launches).items():
        best = {label(row) for row in front(here)}
        for row in sorted(here, key=lambda row: row["median"]):
            rows.append((
                format_bytes(size), row["algorithm"], row["codec"], us(row["median"]),
                f"{us(row['low'])} .. {us(row['high'])}", f"{row['error']:.1e}",
                str(row.get("wire_bytes", max(row["sent_bytes"], 0)) or "-"),
                str(found.get((label(row), size), "")), "*" * (label(row) in best),
            ))  # fmt: skip
    headers = (
        "size ", "algorithm", "codec", "median us ", "95 % interval us ", "error ", "sent bytes ", "vendor / this ",
        "on the front",
    )  # fmt: skip
    return Table(f"{setup}; {units(launches)}", headers, tuple(rows))


def draw(setup: Setup, launches: Sequence[Launch], style: dict[str, dict]) -> plt.Figure:
    sizes = _by_size(launches)
    chosen = list(sizes)[-PANELS:]
    title = f"Time against error: {setup}; {units(launches)}"
    made, panels = figure(title, 1.2 + 2.7 * len(chosen), len(chosen), sharex=True)
    errors = [row["error"] for size in chosen for row in sizes[size] if row["error"] > 0]
    floor = min(errors, default=1e-8) / 10  # where those without any error are drawn
    for axes, size in zip(panels, chosen, strict=True):
        for row in sizes[size]:
            look = {key: value for key, value in style[row["codec"]].items() if key in ("color", "marker")}
            bars = spread([row["median"] * 1e6], [row["low"] * 1e6], [row["high"] * 1e6])
            at = max(row["error"], floor)
            axes.errorbar([at], [row["median"] * 1e6], bars, label=row["codec"], linestyle="", alpha=0.8, **look)
        best = front(sizes[size])
        xs, ys = [max(row["error"], floor) for row in best], [row["median"] * 1e6 for row in best]
        axes.plot(xs, ys, color="black", linewidth=0.8, linestyle="--", drawstyle="steps-post")
        for x, y, row in zip(xs, ys, best, strict=True):
            axes.annotate(label(row), (x, y), (3, -9), textcoords="offset points", fontsize=7)
        axes.set(xscale="log", yscale="log", ylabel="time, us", title=format_bytes(size))
        axes.margins(x=0.15, y=0.2)
    panels[-1].set_xlabel("relative L2 error of the sum")
    shown = {text: line for axes in panels for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    made.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=5, title="codec")
    return made


if __name__ == "__main__":
    sys.exit(program(make, __doc__))
