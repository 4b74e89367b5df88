"""Draw a record: bus bandwidth of every algorithm against message size, and how much faster than MPI_Allreduce it is.

Usage: python analysis/bandwidth.py results/FILE.h5 [--launch launch-0001] [-o FIGURE.svg]
Needs the extra ``analysis`` (matplotlib), no MPI.  The numbers behind the picture: python -m mpi_allreduce show FILE.h5
"""

import argparse
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

from mpi_allreduce.bench import read, read_launches
from mpi_allreduce.bench.heading import heading
from mpi_allreduce.units import format_bytes

# Okabe and Ito's colours, told apart by the colour-blind; markers tell them apart in grey.
STYLES = ["#0072B2 o", "#E69F00 s", "#009E73 ^", "#D55E00 v", "#CC79A7 D", "#56B4E9 P", "#9A8700 X", "#555555 *"]


def main() -> None:
    """Read the arguments, draw one launch."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("--launch", help="by default the last")
    parser.add_argument("-o", "--output", type=Path, help="by default the record's name with .svg")
    args = parser.parse_args()
    launches = read_launches(args.record)
    launch = args.launch or list(launches)[-1]
    rows = [row for row in read(args.record, launch) if "median" in row]
    facts = launches[launch]
    figure = draw(rows, f"{heading(facts['environment'], facts['settings'])}, {facts['started'][:10]}")
    output = args.output or args.record.with_suffix(".svg")
    figure.savefig(output, bbox_inches="tight", dpi=150)
    print(output)


def draw(rows: list[dict], title: str) -> plt.Figure:
    """Two panels that share the axis of sizes; bars are 95 % confidence intervals of the median."""
    lines = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["bytes"]):
        lines[row["algorithm"]].append(row)
    vendor = {row["bytes"]: row["median"] for row in lines.get("vendor", [])}
    figure, (above, below) = plt.subplots(2, 1, figsize=(9, 8), sharex=True, height_ratios=(3, 2))
    styles = iter(f"{style} {dashes}" for dashes in ("-", "--", ":", "-.") for style in STYLES)
    for name in sorted(lines, key=lambda name: (name.startswith("vendor"), name)):
        colour, marker, dashes = ["black", ".", "-"] if name == "vendor" else next(styles).split()
        options = {"color": colour, "marker": marker, "ls": dashes, "label": name, "markersize": 5, "linewidth": 1.2}
        here = lines[name]
        sizes = [row["bytes"] for row in here]
        scale = [row["busbw"] * row["median"] / 1e9 for row in here]  # GB on the wire
        middle = [row["busbw"] / 1e9 for row in here]
        spread = [
            [m - s / row["high"] for m, s, row in zip(middle, scale, here, strict=True)],
            [s / row["low"] - m for m, s, row in zip(middle, scale, here, strict=True)],
        ]
        above.errorbar(sizes, middle, spread, capsize=2, **options)
        ratios = [vendor[row["bytes"]] / row["median"] if row["bytes"] in vendor else float("nan") for row in here]
        below.plot(sizes, ratios, **options)
    above.set(xscale="log", yscale="log", ylabel="bus bandwidth, GB/s", title=title)
    above.title.set(fontsize=9, wrap=True)
    below.set(xscale="log", ylabel="times faster than MPI_Allreduce", xlabel="bytes per rank")
    below.axhline(1, color="black", linewidth=0.8)
    below.set_ylim(bottom=0)
    sizes = sorted({row["bytes"] for row in rows})
    below.set_xticks(sizes, [format_bytes(size) for size in sizes], rotation=45)
    below.minorticks_off()
    above.legend(fontsize=8, ncols=2)
    for axes in (above, below):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    return figure


if __name__ == "__main__":
    main()
