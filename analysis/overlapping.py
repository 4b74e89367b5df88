"""How much communication a backward pass hides, and when its buckets were reduced: records of ``overlap``.

Usage: python analysis/overlapping.py results/overlap-FILE.h5... [-o FIGURE.svg]
"""

import sys
from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np
from drawing import COLOURS, Part, Table, figure, program
from material import Material
from matplotlib.patches import Patch

from mpi_allreduce.library import library_name
from mpi_allreduce.overlap.reading import OverlapLaunch


def make(material: Material) -> Part:
    """For each launch a table, a figure of all cases, and the timelines of two of them."""
    launches = [launch for launch in material.overlaps if launch.cases]
    return Part(
        name="overlap",
        title="Communication hidden behind computing",
        how_to_read="First figure: an iteration is its computing, measured alone, and what is exposed beyond it; the "
        "line is the 95 % interval, the diamond what it would take if computing hid all it could of buckets that go "
        "one after the other (several in flight can beat that). Second: the last iteration of the case that exposes "
        "least and of the one that exposes most, on rank 0: ticks are gradients that became ready, bars the allreduce "
        "of a bucket from its start to its end, hatched is waiting.",
        tables=tuple(table(launch) for launch in launches),
        figures=tuple(made for launch in launches for made in (draw(launch), *timelines(launch))),
        missing="No records of overlap: run mpirun ... python -m mpi_allreduce overlap.",
    )


def _title(launch: OverlapLaunch) -> str:
    e, s = launch.environment, launch.settings
    hosts = len(e["hosts"])
    where = f"{e['ranks']} ranks on {hosts} host{'s' * (hosts > 1)}, {library_name(e['mpi_library'])}"
    return f"{where}; {s['model']}, computation {s['computing']}, {e['started'][:10]}"


def _case(case: dict) -> str:
    size = f"{case['layers']} layers" if case["layers"] else f"{case['bucket_bytes'] / 1024:g} KiB"
    return f"{case['algorithm']} {case['codec']} {case['mode']}, {size}, {case['compute_seconds'] * 1e3:.3g} ms"


def table(launch: OverlapLaunch) -> Table:
    rows = tuple(
        (
            _case(case), f"{case['iteration'] * 1e3:.2f}", f"{case['low'] * 1e3:.2f} .. {case['high'] * 1e3:.2f}",
            *(f"{case[key] * 1e3:.2f}" for key in ("computing", "communicating", "exposed", "ideal_exposed")),
            f"{case['share']:.0%}", f"{case['of_ideal']:.0%}",
        )
        for case in launch.cases
    )  # fmt: skip
    headers = (
        "case, buckets, backward pass", "iteration ms ", "95 % interval ms ", "computing ms ", "communicating ms ",
        "exposed ms ", "at least ms ", "hidden ", "of possible ",
    )  # fmt: skip
    return Table(_title(launch), headers, rows)


def draw(launch: OverlapLaunch) -> plt.Figure:
    """Iterations, and their parts."""
    cases = sorted(launch.cases, key=lambda case: (case["compute_seconds"], case["iteration"]))
    made, (axes,) = figure(_title(launch), 1.6 + 0.24 * len(cases))
    at = np.arange(len(cases))
    computing, exposed, least, iteration, low, high = (
        np.array([case[key] for case in cases]) * 1e3
        for key in ("computing", "exposed", "ideal_exposed", "iteration", "low", "high")
    )
    axes.barh(at, computing, color="#bbbbbb", label="computing")
    axes.barh(at, exposed, left=computing, color=COLOURS[1], hatch="///", edgecolor="white", label="exposed")
    bars = [np.maximum(iteration - low, 0), np.maximum(high - iteration, 0)]
    axes.errorbar(iteration, at, xerr=bars, color="black", linestyle="", linewidth=1, label="95 % interval")
    axes.plot(computing + least, at, "D", color=COLOURS[0], markeredgecolor="white", label="in sequence, at least")
    axes.set_yticks(at, [_case(case) for case in cases], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("iteration, ms")
    made.legend(loc="outside lower center", ncols=4)
    return made


def timelines(launch: OverlapLaunch) -> Iterator[plt.Figure]:
    """Lanes of buckets, of the two extremes, on one scale of time; blocking runs have no events."""
    ordered = sorted((c for c in launch.cases if c["timelines"][0].events), key=lambda case: case["exposed"])
    if not ordered:
        return
    chosen = ordered[:1] + ordered[1:][-1:]
    deep = [case["buckets"] + 1 for case in chosen]
    height = 1.8 + 0.6 * len(chosen) + 0.22 * sum(deep)
    title = f"Least and most exposed of those not blocking, rank 0: {_title(launch)}"
    made, panels = figure(title, height, len(chosen), sharex=True, height_ratios=deep)
    for axes, case in zip(panels, chosen, strict=True):
        _lanes(axes, case)
        axes.set_title(f"{_case(case)}: {case['exposed'] * 1e3:.2f} ms exposed")
    panels[-1].set_xlabel("ms since the iteration began")
    made.legend(
        handles=[
            Patch(color=COLOURS[0], label="allreduce of a bucket"),
            Patch(facecolor="white", edgecolor=COLOURS[3], hatch="////", label="waiting for all"),
            plt.Line2D([], [], color="black", marker="|", linestyle="", label="gradient ready"),
        ],
        loc="outside lower center",
        ncols=3,
    )
    yield made


def _lanes(axes: plt.Axes, case: dict) -> None:
    begun: dict[tuple[int, int], float] = {}
    for event in case["timelines"][0].events:
        at, lane = event.seconds * 1e3, event.bucket if event.bucket >= 0 else case["buckets"]
        if event.kind == "ready":
            axes.plot(at, lane, "|", color="black", markersize=9)
        elif event.kind in ("start", "wait"):
            begun[event.step, lane] = at
        elif event.kind in ("end", "done") and (event.step, lane) in begun:
            first = begun.pop((event.step, lane))
            look = {"color": COLOURS[0]}
            if event.kind == "done":
                look = {"facecolor": "white", "edgecolor": COLOURS[3], "hatch": "////"}
            axes.broken_barh([(first, at - first)], (lane - 0.35, 0.7), **look)
    axes.set_yticks(range(case["buckets"] + 1), [*(f"bucket {i}" for i in range(case["buckets"])), "all"])
    axes.set_ylim(case["buckets"] + 0.5, -0.5)


if __name__ == "__main__":
    sys.exit(program(make, __doc__))
