"""One page about all records: who wins where and by how much, then every part with its figures and tables.

Usage: python analysis/report.py results/*.h5 [-o report]
Writes DIR/index.html, which needs no other file, and each figure as SVG and PNG beside it.

Exit status: 0; 2 if nothing at all could be read.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from drawing import Part, save
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape
from material import Material, load, tell
from measures import Ratio, best_of_ours, ratios

from mpi_allreduce.bench.table import spans
from mpi_allreduce.units import format_bytes

PARTS = (
    "ratio_map", "bandwidth", "crossovers", "scaling", "pareto", "skew", "overlapping", "learning", "environments",
)  # fmt: skip
_VERDICTS = {
    "win": "ours are faster at {sizes}",
    "lose": "MPI_Allreduce is faster at {sizes}",
    "tie": "no difference is shown at {sizes}",
    "undecided": "too few launches and visits to tell at {sizes}",
}


@dataclass(frozen=True)
class Drawing:
    """A figure on the page: the stem of its files, and itself."""

    stem: str
    svg: Markup


def main(arguments: list[str] | None = None) -> int:
    """Read, draw, write."""
    summary, _, rest = __doc__.partition("\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE.h5", help="records of bench, overlap and train")
    parser.add_argument("-o", "--output", type=Path, default=Path("report"), metavar="DIR")
    args = parser.parse_args(arguments)
    material = load(args.files)
    tell(material.problems)
    if not material:
        print("report: nothing could be read", file=sys.stderr)
        return 2
    args.output.mkdir(parents=True, exist_ok=True)
    parts = [import_module(name).make(material) for name in PARTS]
    drawings = {part.name: list(_drawings(part, args.output)) for part in parts}
    template = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    page = template.get_template("report.html.jinja").render(
        summary=list(sentences(material)), problems=material.problems, parts=parts, drawings=drawings, files=args.files
    )
    (args.output / "index.html").write_text(page, encoding="utf-8")
    print(args.output / "index.html")
    return 0


def _drawings(part: Part, folder: Path) -> Iterator[Drawing]:
    for number, made in enumerate(part.figures, 1):
        stem = f"{part.name}-{number}"
        for kind in ("svg", "png"):
            save(made, folder / f"{stem}.{kind}")
        yield Drawing(stem, inline((folder / f"{stem}.svg").read_text(encoding="utf-8"), stem, made.get_label()))


def inline(svg: str, prefix: str, says: str) -> Markup:
    """An SVG file as an element of a page: without its declarations, and with names that are its own."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    size = r' width="[^"]*pt" height="[^"]*pt"'  # the page decides; viewBox keeps the proportions
    return Markup(re.sub(size, lambda _: f' role="img" aria-label="{escape(says)}"', svg, count=1))


def sentences(material: Material) -> Iterator[str]:
    """Who wins where, by how much, and how sure that is: a few lines for each setup, then what to be warned of."""
    for setup, launches in material.setups.items():
        best = best_of_ours(ratios(launches))
        n = len(launches)
        lead = f"{setup}, {n} launch{'es' * (n > 1)}: "
        if not best:
            yield f"{lead}nothing to compare with MPI_Allreduce, which was not timed beside ours."
            continue
        verdicts = [_VERDICTS[word].format(sizes=sizes) for word, sizes in _by_verdict(best)]
        yield f"{lead}{'; '.join(verdicts)}. {_extremes(best)}"
    if wrong := [f"{text} ({launch.path.name} {launch.name})" for launch in material.launches for text in launch.wrong]:
        yield f"WRONG results, left out of everything: {', '.join(wrong)}."
    for launch in material.overlaps:
        if launch.cases:
            least = min(launch.cases, key=lambda case: case["iteration"])
            yield (
                f"{launch.settings['model']} on {launch.environment['ranks']} ranks: the shortest iteration, with "
                f"{least['algorithm']}, codec {least['codec']}, {least['mode']}, takes "
                f"{least['iteration'] * 1e3:.1f} ms ({least['low'] * 1e3:.1f} .. {least['high'] * 1e3:.1f}), of which "
                f"{least['exposed'] * 1e3:.1f} ms are communication that nothing hides."
            )


def _by_verdict(best: dict[int, Ratio]) -> Iterator[tuple[str, str]]:
    for word in _VERDICTS:
        if sizes := [size for size, ratio in best.items() if ratio.verdict == word]:
            yield word, spans(sizes, sorted(best))


def _extremes(best: dict[int, Ratio]) -> str:
    top, bottom = (pick(best.values(), key=lambda ratio: ratio.value) for pick in (max, min))
    return " ".join(
        f"At {word} {ratio.value:.2f} x as fast as MPI_Allreduce ({ratio.low:.2f} .. {ratio.high:.2f}), by "
        f"{ratio.name} at {format_bytes(ratio.bytes)}."
        for word, ratio in (("best", top), ("worst", bottom))
    )


if __name__ == "__main__":
    sys.exit(main())
