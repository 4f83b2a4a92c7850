"""Text of users' programs, made fit to be shown: on a terminal, in a table, in a report."""

from __future__ import annotations

import re

UNSAFE = re.compile("\x1b\\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Colours; and control characters, which could move the cursor or worse."""

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def coloured(line: str) -> str:
    """The line with all control characters but colours spelled out, and without a colour left on."""
    shown = UNSAFE.sub(lambda it: it[0] if len(it[0]) > 1 else _spelled(it[0]), line)
    return f"{shown}\x1b[0m" if "\x1b" in shown else shown


def plain(text: str) -> str:
    """The text with all control characters spelled out, colours and ends of lines, too: for one cell."""
    return _CONTROL.sub(lambda it: _spelled(it[0]), text)


def shortened(text: str, most: int) -> str:
    """The beginning and the end of a text of more than so many characters."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} … {len(text) - 2 * half:,} characters left out … {text[-half:]}"


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode()
