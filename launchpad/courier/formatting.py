"""Text for people: sizes, times, counts and tables. Output of users' programs is made safe to show.

All sizes have binary units, like `lp.Resources(memory="4GiB")`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_AGES = (("d", 86_400), ("h", 3600), ("min", 60))

UNSAFE = re.compile("\x1b\\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Escape sequences for colours, and control characters. The latter could move the cursor or do worse."""

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def coloured(line: str) -> str:
    """Return the line with control characters other than colours spelled out, and colours off at its end."""
    # The pattern matches colours, which have several characters, and single control characters.
    text = UNSAFE.sub(lambda match: match[0] if len(match[0]) > 1 else _spelled(match[0]), line)
    return f"{text}\x1b[0m" if "\x1b" in text else text


def plain(text: str) -> str:
    """Return the text with all control characters, colours and newlines spelled out, for one cell."""
    return _CONTROL.sub(lambda match: _spelled(match[0]), text)


def shortened(text: str, most: int) -> str:
    """Return the text. If it has more than `most` characters, return only its beginning and its end."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} … {len(text) - 2 * half:,} characters left out … {text[-half:]}"


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode()


def size(n_bytes: float) -> str:
    """Return a number of bytes with three digits, `1.23 MiB`, but no trailing zeros: `4 GiB`."""
    unit, divisor = size_unit(n_bytes)
    digits = f"{n_bytes / divisor:.{_decimals(n_bytes / divisor)}f}"
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return f"{digits} {unit}"


def size_unit(n_bytes: float) -> tuple[str, int]:
    """Return the unit that suits a number of bytes, such as `MiB`, and the unit's own size in bytes."""
    power = 0
    while n_bytes >= 1024 ** (power + 1) and power < len(_SIZES) - 1:
        power += 1
    return _SIZES[power], 1024**power


def seconds(s: float) -> str:
    """Return a measured time with three digits and a unit: `120 µs`, `1.20 ms`; `–` for NaN."""
    if math.isnan(s):
        return "–"
    if s >= 120:
        return f"{s / 60:,.0f} min"
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if s * scale >= 1:
            return f"{s * scale:.{_decimals(s * scale)}f} {unit}"
    return f"{s * 1e6:.{_decimals(s * 1e6)}f} µs"


def age(s: float) -> str:
    """Return a length of time in its two largest units: `1 h 12 min`."""
    parts: list[str] = []
    remaining = int(max(s, 0))
    for name, length in _AGES:
        if remaining >= length or parts:
            parts.append(f"{remaining // length} {name}")
            remaining %= length
    return " ".join([*parts, f"{remaining} s"][:2])


def counted(number: float, noun: str) -> str:
    """Return a number and its noun: `1 GPU`, `0.25 GPU`, `2 GPUs`."""
    return f"{number:g} {noun}{'s' * (number > 1)}"


def aligned(rows: Sequence[Sequence[str]], n_text: int | None = None) -> list[str]:
    """Return the rows of a table as lines, with columns as wide as their widest cell.

    Args:
        n_text: The number of columns that are text. The columns after them are numbers. By default all
            columns are text.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if n_text is None:
        n_text = len(widths)
    align = [str.ljust] * n_text + [str.rjust] * (len(widths) - n_text)
    return [
        "  ".join(to(cell, n) for to, cell, n in zip(align, row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _decimals(number: float) -> int:
    """Return how many digits to write after the point, so that there are three digits in total."""
    if number >= 99.95:
        return 0
    return 1 if number >= 9.995 else 2
