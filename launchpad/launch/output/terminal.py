"""How lines of workers look on the terminal; control characters in them are shown, not sent to it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TextIO

_COLORS = (
    "cyan",
    "green",
    "yellow",
    "magenta",
    "blue",
    "bright_red",
    "bright_cyan",
    "bright_green",
)

_UNSAFE = re.compile("\x1b\\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Colours, which may pass; and control characters, which could move the cursor or worse."""


def prefixes(stream: TextIO, workers: Sequence[str], ours: str = "") -> dict[str, str]:
    """Name → what stands before its lines: in a colour, if the stream is a terminal that shows them.

    Args:
        ours: The name for lines of our own.
    """
    styles = {worker: _COLORS[i % len(_COLORS)] for i, worker in enumerate(workers)}
    if ours:
        styles[ours] = "bold"
    width = max(map(len, styles))
    padded = {name: f"{name.ljust(width)} | " for name in styles}
    if not is_terminal(stream):
        return padded
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream)  # it reads TERM, NO_COLOR and the like
    for name, style in styles.items():
        with console.capture() as capture:
            console.print(Text(padded[name], style), end="", soft_wrap=True)
        padded[name] = capture.get()
    return padded


def is_terminal(stream: TextIO) -> bool:
    """Whether it is a terminal."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError, OSError):
        return False


def write(stream: TextIO, text: str) -> bool:
    """Whether the stream still takes text."""
    try:
        if text:
            # Characters that the stream's encoding does not have become question marks.
            encoding = getattr(stream, "encoding", None) or "utf-8"
            stream.write(text.encode(encoding, "replace").decode(encoding))
            stream.flush()
    except BlockingIOError:
        return True  # a program made the terminal non-blocking: some text is missing there, the log has it
    except (OSError, ValueError):
        return False
    return True


def prefixed(prefix: str, lines: Sequence[bytes]) -> str:
    """Lines of a log as they are shown, each with the prefix in front."""
    text = b"\n".join(lines).decode(errors="replace")
    if _UNSAFE.search(text) is None:  # nearly always, and ten times as fast
        return f"{prefix}{text}\n".replace("\n", f"\n{prefix}", len(lines) - 1)
    # A progress bar has overwritten its line many times: only the last state is shown.
    last = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return "".join(f"{prefix}{safe(line)}\n" for line in last)


def safe(text: str) -> str:
    """The text with all control characters but colours spelled out, and without a colour left on."""
    shown = _UNSAFE.sub(
        lambda it: it[0] if len(it[0]) > 1 else it[0].encode("unicode_escape").decode(), text
    )
    return f"{shown}\x1b[0m" if "\x1b" in shown else shown
