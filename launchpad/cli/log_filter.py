"""Which lines of a worker's log are shown: those since a time, those that match.

Logs have no times of their own, they are what workers print. A line is as old as the time with which it
begins, as those of `logging`, absl, loguru or structlog do; without one as old as the line before it, whose
traceback it may be. What comes before the first time is shown if the attempt has printed anything since.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_COLORS = re.compile("\x1b\\[[0-9;]*m")
_ISO = re.compile(
    r"\W*(?:[A-Z]+\W+)?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
)
_ABSL = re.compile(r"[IWEF](\d{4} \d\d:\d\d:\d\d\.\d+)")
_DAY_S = 86_400.0


@dataclass
class LogFilter:
    """The filter of one worker's lines, which are given to it in their order.

    Args:
        since: In seconds since 1970; None: all.
        pattern: Searched for in each line without its colours; None: any line.
    """

    since: float | None
    pattern: re.Pattern[str] | None
    _at: float | None = None

    def passed(self, lines: Iterable[bytes]) -> list[bytes]:
        """Those of the lines that are shown."""
        if self.since is None and self.pattern is None:
            return list(lines)
        return [line for line in lines if self._passes(line)]

    def _passes(self, line: bytes) -> bool:
        text = _COLORS.sub("", line.decode(errors="replace"))
        if self.since is not None:
            self._at = time_of(text) or self._at
            if self._at is not None and self._at < self.since:
                return False
        return self.pattern is None or self.pattern.search(text) is not None


def time_of(line: str) -> float | None:
    """The time with which a line begins, in seconds since 1970; None without one. Local, unless it says."""
    try:
        if match := _ISO.match(line):
            return datetime.fromisoformat(match[1]).timestamp()
        if match := _ABSL.match(line):  # it has no year
            year = datetime.now().year
            at = datetime.strptime(f"{year} {match[1]}", "%Y %m%d %H:%M:%S.%f")
            is_of_last_year = at.timestamp() > time.time() + _DAY_S
            return (at.replace(year=year - 1) if is_of_last_year else at).timestamp()
    except ValueError:  # digits, but no time
        pass
    return None


def since(text: str) -> float:
    """An argument: `90s`, `10m`, `2h`, `1d` ago, or a time such as `2026-11-26T14:30`."""
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
        return time.time() - float(match[1]) * _UNITS[match[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a length of time, such as 10m (s, m, h, d), nor a time, 2026-11-26T14:30"
        ) from None


def pattern(text: str) -> re.Pattern[str]:
    """An argument: a regular expression of Python's."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
