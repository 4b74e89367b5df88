"""Sizes and rates as people write them."""

import re

__all__ = ["format_bytes", "parse_bytes", "parse_rate", "parse_sizes"]

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_bytes(text: str) -> int:
    """``4``, ``64K``, ``1.5M``, ``2GiB`` -> bytes; the units are powers of 1024.

    Raises
    ------
    ValueError
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match or float(match[1]) == 0:
        raise ValueError(f"size: expected a number of bytes such as 4, 64K or 1M, got {text!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def parse_rate(text: str) -> float:
    """``100mbit``, ``25gbit`` -> bits per second.

    Raises
    ------
    ValueError
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)bit", text.strip(), re.IGNORECASE)
    if not match or not float(match[1]):
        raise ValueError(f"rate: expected a rate such as 100mbit or 25gbit, got {text!r}")
    return float(match[1]) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[match[2].lower()]


def parse_sizes(text: str) -> tuple[int, ...]:
    """``4:16M`` (times 4 from step to step), ``1K:1M:2`` (with a factor), ``4,1K,1M`` (a list), or a mixture.

    Raises
    ------
    ValueError
    """
    sizes: set[int] = set()
    for part in text.split(","):
        if ":" not in part:
            sizes.add(parse_bytes(part))
            continue
        first, last, *rest = part.split(":")
        low, high = parse_bytes(first), parse_bytes(last)
        try:
            (factor,) = map(float, rest or ["4"])
        except ValueError:
            raise ValueError(f"size: expected FIRST:LAST or FIRST:LAST:FACTOR, got {part!r}") from None
        if factor <= 1 or low < 1 or high < low:
            raise ValueError(f"size: {part!r} needs 1 <= FIRST <= LAST and a FACTOR above 1")
        size = float(low)
        while size <= high:
            sizes.add(int(size))
            size *= factor
    return tuple(sorted(sizes))


def format_bytes(size: int) -> str:
    """``65536`` -> ``64 KiB``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} B"
