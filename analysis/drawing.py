"""How tables and figures look, what a part of the report is, and the small program that each part is.

Colours are Okabe and Ito's, which the colour-blind tell apart; markers and dashes tell lines apart in grey.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from material import Material, load, tell
from rich.box import SIMPLE_HEAD
from rich.table import Table as Screen

from mpi_allreduce.screen import console
from mpi_allreduce.units import format_bytes

matplotlib.use("agg")
import matplotlib.pyplot as plt

__all__ = ["COLOURS", "Part", "Table", "WIDTH", "figure", "program", "save", "size_axis", "spread", "styles", "us"]

COLOURS = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#9A8700", "#666666"]
MARKERS = "os^vDPX*"
DASHES = ["-", "--", "-.", ":"]
WIDTH = 7.2  # inches: on a phone letters are still legible
STYLE = {
    "font.size": 9, "axes.titlesize": 9, "axes.titlelocation": "left", "figure.titlesize": 9, "legend.fontsize": 8,
    "axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False, "lines.markersize": 4.5,
    "lines.linewidth": 1.2, "errorbar.capsize": 2, "svg.hashsalt": "mpi_allreduce", "axes.axisbelow": True,
}  # fmt: skip
plt.rcParams.update(STYLE)


@dataclass(frozen=True)
class Table:
    """Rows of cells with headers, and a caption.

    Attributes
    ----------
    caption : str
    headers : tuple of str
        Of numbers' columns they end with a space, which aligns them to the right.
    rows : tuple of tuple of str
    """

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Part:
    """One question that records answer.

    Attributes
    ----------
    name : str
        Of its files.
    title, how_to_read : str
    tables : tuple of Table
        The numbers behind the figures.
    figures : tuple of Figure
        Their labels say what they show.
    missing : str
        If there are none: what records it takes.
    """

    name: str
    title: str
    how_to_read: str
    tables: tuple[Table, ...] = ()
    figures: tuple[plt.Figure, ...] = ()
    missing: str = ""


def figure(title: str, height: float, rows: int = 1, columns: int = 1, **options) -> tuple[plt.Figure, list[plt.Axes]]:
    """A figure whose parts make room for each other, with the title above, and its axes one after the other."""
    with plt.rc_context(STYLE):
        made, axes = plt.subplots(
            rows, columns, figsize=(WIDTH, height), layout="constrained", squeeze=False, **options
        )
        plt.close(made)  # pyplot need not keep it
        made.set_label(title)
        made.suptitle(_wrapped(title), x=0.01, ha="left")
    return made, list(axes.flat)


def _wrapped(text: str, width: int = 105) -> str:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] += f"{word} "
    return "\n".join(line.rstrip() for line in lines)


def styles(names: Sequence[str]) -> dict[str, dict]:
    """A colour, marker and dashes for each name; MPI_Allreduce is black."""
    found = {}
    number = 0
    for name in names:
        if name == "vendor":
            found[name] = {"color": "black", "marker": ".", "linestyle": "-", "linewidth": 2.0}
            continue
        lap, place = divmod(number, len(COLOURS))
        dashes = DASHES[(place + lap) % len(DASHES)]
        found[name] = {"color": COLOURS[place], "marker": MARKERS[(place + 3 * lap) % 8], "linestyle": dashes}
        number += 1
    return found


def us(seconds: float) -> str:
    """Microseconds with three digits or more."""
    value = seconds * 1e6
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def size_axis(axes: plt.Axes, sizes: Iterable[int], label: str = "bytes per rank") -> None:
    """A logarithmic axis of sizes, with names where there is room."""
    sizes = sorted(set(sizes))
    shown = sizes[:: -(-len(sizes) // 14)]
    axes.set_xscale("log", base=2)
    axes.set_xticks(shown, [format_bytes(size) for size in shown], rotation=45, ha="right", rotation_mode="anchor")
    axes.minorticks_off()
    axes.set_xlabel(label)


def spread(middle: Sequence[float], low: Sequence[float], high: Sequence[float]) -> list[list[float]]:
    """Ends of intervals as matplotlib's error bars want them; the middle may lie a rounding error outside."""
    below = [max(m - a, 0) for m, a in zip(middle, low, strict=True)]
    return [below, [max(b - m, 0) for m, b in zip(middle, high, strict=True)]]


def save(made: plt.Figure, path: Path) -> None:
    """Write a figure; nothing of it is cut off.  The same figure makes the same file."""
    quiet = dict.fromkeys(("Date", "Creator", "Format", "Type")) if path.suffix == ".svg" else None
    made.savefig(path, bbox_inches="tight", dpi=150, metadata=quiet)


def program(make: Callable[[Material], Part], doc: str) -> int:
    """The command line of a part: print its tables, draw its figures.

    Returns
    -------
    int
        Exit status: 0; 1 if the records hold nothing for this part; 2 if none could be read.
    """
    summary, _, rest = doc.partition("\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE.h5", help="records")
    parser.add_argument("--launch", metavar="NAME", help="only this one, e.g. launch-0002; by default all")
    parser.add_argument("-o", "--output", type=Path, help="FILE.svg or FILE.png; by default beside the first record")
    args = parser.parse_args()
    material = load(args.files, args.launch)
    tell(material.problems)
    if not material:
        return 2
    part = make(material)
    screen = console(150)
    for table in part.tables:
        screen.print(on_screen(table))
    output = args.output or args.files[0].with_suffix(f".{part.name}.svg")
    for number, made in enumerate(part.figures, 1):
        path = output if number == 1 else output.with_stem(f"{output.stem}-{number}")
        save(made, path)
        screen.print(path, soft_wrap=True)
    if not part.tables:
        screen.print(part.missing)
        return 1
    return 0


def on_screen(table: Table) -> Screen:
    """For a terminal."""
    made = Screen(box=SIMPLE_HEAD, title=table.caption, title_justify="left", title_style="", pad_edge=False)
    for header in table.headers:
        made.add_column(header.strip(), justify="right" if header.endswith(" ") else "left")
    for row in table.rows:
        made.add_row(*row)
    return made
