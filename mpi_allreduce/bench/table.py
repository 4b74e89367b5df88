"""Records as a table on the screen, and what follows from it in words."""

from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ..codecs import NONE
from ..units import format_bytes
from .statistics import ENOUGH

__all__ = ["ENOUGH", "WIDTH", "closing_lines", "codec_table", "print_rows", "ratio_tables", "results_table", "spans"]

Row = dict[str, object]
WIDTH = 140  # of the widest line of the table
COLUMNS_AT_ONCE = 10
_COLUMNS = (
    "median\nus", "95 % interval\nus", "p99\nus", "algbw\nGB/s", "busbw\nGB/s", "rounds\n", "error\n", "#wrong\n",
    "vendor\n/ours",
)  # fmt: skip


def results_table(rows: Sequence[Row], line_rate: float = 0.0) -> Table:
    """One line for each timed case; sizes apart, the best of each size marked by a star.

    With ``line_rate`` in bits per second, a column says how much of it the bus bandwidth is.
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("algorithm", no_wrap=True)
    for name in (*_COLUMNS, *(["of line\nrate"] if line_rate else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for size in _sizes(rows):
        here = [row for row in rows if row["bytes"] == size]
        vendor = _vendor(here)
        best = min(_exact(here) or here, key=lambda row: row["median"])
        for row in here:
            cells = [format_bytes(size) if row is here[0] else "", *_cells(row, vendor, row is best)]
            if line_rate:
                cells.append(f"{row['busbw'] * 8 / line_rate:.3f}")
            table.add_row(*cells, style="bold" if row is best else None, end_section=row is here[-1])
    return table


def _cells(row: Row, vendor: Row | None, best: bool) -> list[str]:
    ratio = f"{vendor['median'] / row['median']:.2f}" if vendor and row is not vendor else "-"
    error = f"{row['error']:.1e}" if row["error"] else "0"
    return [
        _label(row) + (" *" if best else ""),
        _us(row["median"]),
        f"{_us(row['low'])} .. {_us(row['high'])}",
        _us(row["p99"]),
        _bandwidth(row["algbw"]),
        _bandwidth(row["busbw"]),
        str(row["rounds"]) if row["rounds"] >= 0 else "-",
        error if row["identical"] else f"{error} !",
        str(row["wrong"]),
        ratio,
    ]


def ratio_tables(rows: Sequence[Row]) -> Iterator[Table]:
    """How many times faster than MPI_Allreduce: a line for each size, a column for each algorithm; as wide as fits."""
    names = list(dict.fromkeys(_label(row) for row in rows if row["algorithm"] != "vendor"))
    medians = {(row["bytes"], _label(row)): row["median"] for row in rows}
    sizes = [size for size in _sizes(rows) if (size, "vendor") in medians]
    ratios = {
        size: {n: medians[size, "vendor"] / medians[size, n] for n in names if (size, n) in medians} for size in sizes
    }
    best = {size: max(here, key=here.get, default=None) for size, here in ratios.items()}
    for first in range(0, len(names) if sizes else 0, COLUMNS_AT_ONCE):
        here = names[first : first + COLUMNS_AT_ONCE]
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
        table.add_column("vendor/ours\n", justify="right", no_wrap=True)
        for name in here:
            table.add_column(_broken(name), justify="right", no_wrap=True)
        for size in sizes:
            cells = [
                f"{ratios[size][n]:.2f}{'*' if n == best[size] else ' '}" if n in ratios[size] else "-" for n in here
            ]
            table.add_row(format_bytes(size), *cells)
        yield table


def _broken(name: str) -> str:
    """A name in two lines."""
    mark = next((mark for mark in (" ", ":", "_") if mark in name), "")
    return name.replace(mark, f"{mark.strip('_')}\n", 1) if mark else f"{name}\n"


def codec_table(rows: Sequence[Row]) -> Table | None:
    """Where the time of encoded cases goes, what they send, how far they are from the exact sum; None without any."""
    encoded = [row for row in rows if "wire_bytes" in row]
    if not encoded:
        return None
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for name in ("size\n", "algorithm\n", "codec\n"):
        table.add_column(name, justify="right" if name.startswith("size") else "left", no_wrap=True)
    for name in (
        "sent\nbytes", "fewer\n", "encode\nus", "decode\nus", "wire\nus", "none\n/codec", "vendor\n/codec", "error\n",
        "bound\n", "largest\nerror", "pays below\nGbit/s",
    ):  # fmt: skip
        table.add_column(name, justify="right", no_wrap=True)
    for i, row in enumerate(encoded):
        here = [r for r in rows if r["bytes"] == row["bytes"]]
        plain = next((r for r in _exact(here) if r["algorithm"] == row["algorithm"]), None)
        vendor = _vendor(here)
        spent = row["encode_seconds"] + row["decode_seconds"]
        last = i + 1 == len(encoded) or encoded[i + 1]["bytes"] != row["bytes"]
        table.add_row(
            format_bytes(row["bytes"]) if i == 0 or encoded[i - 1]["bytes"] != row["bytes"] else "",
            row["algorithm"],
            row["codec"],
            str(row["wire_bytes"]),
            f"{plain['sent_bytes'] / row['wire_bytes']:.2f}"
            if plain and row["wire_bytes"] and plain["sent_bytes"] > 0
            else "-",
            _us(row["encode_seconds"]),
            _us(row["decode_seconds"]),
            _us(max(row["median"] - spent, 0)),
            f"{plain['median'] / row['median']:.2f}" if plain else "-",
            f"{vendor['median'] / row['median']:.2f}" if vendor else "-",
            f"{row['error']:.1e}",
            f"{row['bound']:.1e}" if row["bound"] < float("inf") else "none",
            f"{row['max_error']:.1e}",
            _break_even(row, plain),
            end_section=last,
        )
    return table


def _break_even(row: Row, plain: Row | None) -> str:
    """The speed of each rank's wire at which the bytes saved take as long to send as the codec takes."""
    spent = row["encode_seconds"] + row["decode_seconds"]
    if not plain or plain["sent_bytes"] <= row["wire_bytes"] or not spent:
        return "-"
    return f"{(plain['sent_bytes'] - row['wire_bytes']) * 8 / spent / 1e9:.2f}"


def closing_lines(rows: Sequence[Row], ci: float) -> list[str]:
    """Where ours win, where they lose, where nobody can tell; what was wrong; what could not be run."""
    lines = []
    if not any("median" in row for row in rows):
        return ["Nothing was timed."]
    timed = [row for row in rows if "median" in row]
    verdicts = {size: v for size in _sizes(timed) if (v := _verdict([r for r in timed if r["bytes"] == size]))}
    for word, text in (
        ("win", "Ours win at {sizes}: at best {ratio:.2f} x faster than MPI_Allreduce ({name}, {size})."),
        ("lose", "Ours lose at {sizes}: at worst {inverse:.2f} x slower than MPI_Allreduce ({name}, {size})."),
        ("unknown", "Undecided, with fewer than {needed} visits (or launches pooled), at {sizes}."),
        ("tie", "No difference shown (intervals overlap) at {sizes}."),
    ):
        chosen = {size: v for size, v in verdicts.items() if v[0] == word}
        if chosen:
            pick = max if word == "win" else min
            size, (_, ratio, name) = pick(chosen.items(), key=lambda item: item[1][1])
            sizes = spans(list(chosen), list(verdicts))
            lines.append(
                text.format(
                    sizes=sizes, ratio=ratio, inverse=1 / ratio, name=name, size=format_bytes(size), needed=ENOUGH
                )
            )
    if not verdicts:
        lines.append("No comparison: it takes two ranks, and vendor and one of ours among --algorithms.")
    if any(not row["native_op"] for row in timed):
        lines.append(
            "MPI has no operator for this type: MPI_Allreduce called back a kernel of ours, which slows it down."
        )
    widths = sorted((row["high"] - row["low"]) / 2 / row["median"] for row in timed)
    if widths and widths[-1] > ci:
        uncertain = sum(width > ci for width in widths)
        lines.append(
            f"{uncertain} of {len(timed)} intervals are wider than the {ci:.1%} asked for (median "
            f"{widths[len(widths) // 2]:.0%}, worst {widths[-1]:.0%}): more --max-seconds or a quieter machine helps."
        )
    lines += _codec_lines(timed)
    lines.append(_correctness(timed))
    for reason in sorted({(row["algorithm"], row["skipped"]) for row in rows if "skipped" in row}):
        lines.append(f"Not run: {reason[0]}: {reason[1]}.")
    return lines


def _codec_lines(rows: Sequence[Row]) -> list[str]:
    """Which codecs pay here, which do not, at the largest size."""
    size = max(row["bytes"] for row in rows)
    here = [row for row in rows if row["bytes"] == size]
    gains: dict[str, float] = {}
    for row in here:
        plain = next((r for r in _exact(here) if r["algorithm"] == row["algorithm"]), None)
        if "wire_bytes" in row and plain:
            gains[row["codec"]] = max(gains.get(row["codec"], 0.0), plain["median"] / row["median"])
    if not gains:
        return []
    texts = []
    for word, chosen in (
        ("faster", {name: gain for name, gain in gains.items() if gain > 1}),
        ("slower", {name: gain for name, gain in gains.items() if gain <= 1}),
    ):
        if chosen:
            ranked = sorted(chosen, key=chosen.get, reverse=True)
            texts.append(f"{word}: " + ", ".join(f"{name} ({chosen[name]:.2f} x)" for name in ranked))
    return [f"Codecs beside the same algorithm without one, at {format_bytes(size)}: {'; '.join(texts)}."]


def _exact(rows: Iterable[Row]) -> list[Row]:
    return [row for row in rows if row["codec"] == NONE]


def _label(row: Row) -> str:
    return row["algorithm"] if row["codec"] == NONE else f"{row['algorithm']} {row['codec']}"


def _verdict(rows: Sequence[Row]) -> tuple[str, float, str] | None:
    """Our best at one size against the vendor: (win | lose | tie, vendor / ours, name)."""
    vendor = _vendor(rows)
    ours = [row for row in _exact(rows) if not _is_vendor(row)]
    if not vendor or not ours or vendor["ranks"] == 1:
        return None
    best = min(ours, key=lambda row: row["median"])
    ratio = vendor["median"] / best["median"]
    if min(best["visits"], vendor["visits"]) < ENOUGH:
        return "unknown", ratio, best["algorithm"]
    if best["high"] < vendor["low"]:
        return "win", ratio, best["algorithm"]
    if best["low"] > vendor["high"]:
        return "lose", ratio, best["algorithm"]
    return "tie", ratio, best["algorithm"]


def _correctness(rows: Sequence[Row]) -> str:
    wrong = [row for row in rows if row["wrong"]]
    varying = sorted({_label(row) for row in rows if not row["repeatable"] and row["codec"] == NONE})
    unequal = sorted({_label(row) for row in rows if not row["identical"]})
    text = "Every result is right" if not wrong else f"WRONG results in {len(wrong)} of {len(rows)} cases"
    if varying:
        text += f"; other bits from run to run: {', '.join(varying)}"
    if unequal:
        return f"{text} to rounding; NOT THE SAME BITS on all ranks (marked !): {', '.join(unequal)}."
    return f"{text}, and has the same bits on all ranks."


def print_rows(screen: Console, rows: Sequence[Row], heading: str, settings: dict) -> None:
    """Heading, table, summary and closing lines of a launch with the given settings."""
    timed = [row for row in rows if "median" in row]
    if timed:
        screen.print(f"\n{heading}\n", soft_wrap=True)
        screen.print(results_table(timed, settings.get("line_rate", 0.0)))
        for summary in ratio_tables(timed):
            screen.print(summary)
        if codecs := codec_table(timed):
            screen.print(codecs)
    for line in closing_lines(rows, settings["ci"]):
        screen.print(line, soft_wrap=True)


def _is_vendor(row: Row) -> bool:
    return row["algorithm"].startswith("vendor")


def _vendor(rows: Iterable[Row]) -> Row | None:
    return next((row for row in rows if row["algorithm"] == "vendor"), None)


def _sizes(rows: Iterable[Row]) -> list[int]:
    return sorted({row["bytes"] for row in rows})


def spans(chosen: list[int], all_sizes: list[int]) -> str:
    """Sizes that are neighbours among all as ranges: ``4 B - 1 KiB, 16 KiB``."""
    spans: list[list[int]] = []
    for size in sorted(chosen):
        previous = all_sizes[all_sizes.index(size) - 1] if size != all_sizes[0] else None
        if spans and spans[-1][1] == previous:
            spans[-1][1] = size
        else:
            spans.append([size, size])
    return ", ".join(format_bytes(a) if a == b else f"{format_bytes(a)} - {format_bytes(b)}" for a, b in spans)


def _us(seconds: float) -> str:
    value = seconds * 1e6
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _bandwidth(bytes_per_second: float) -> str:
    value = bytes_per_second / 1e9
    return f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"
