"""What a worker's interpreter takes over from the launching script's, whatever host it is on.

    hash seed           PYTHONHASHSEED of the script, else one that is drawn; all workers of a run have it
    flags               -O, -X dev, -W and the like
    recursion limit     `sys.setrecursionlimit`
    warnings' filters   but for those whose category is a class of a package: it would be imported
    root logger         its level, INFO where it is Python's default; and its format: a handler that writes to
                        the worker's log, absl's own if it has that

The first two count when an interpreter starts, the others are set before code of the user's is imported.
"""

from __future__ import annotations

import builtins
import logging
import os
import sys
import warnings
from typing import Any

from launchpad.courier.light_dataclass import dataclass
from launchpad.errors import LaunchError

HASH_SEED = "PYTHONHASHSEED"


@dataclass(frozen=True)
class InterpreterSettings:
    """Plain data, for another process.

    Attributes:
        warning_filters: Entries of `warnings.filters`, with text for patterns and for the category its name.
        log_format: Format, format of dates and style of the root logger; None: it has no such handler.
        uses_absl: Whether its handler is absl's, as under `absl.app.run`.
    """

    hash_seed: str
    flags: tuple[str, ...]
    recursion_limit: int
    warning_filters: tuple[tuple[Any, str, str, str, int], ...]
    log_level: int
    log_format: tuple[str | None, str | None, str] | None
    uses_absl: bool

    @classmethod
    def here(cls) -> InterpreterSettings:
        """Those of this process; called once for a run."""
        given = os.environ.get(HASH_SEED, "")
        root = logging.getLogger()
        return cls(
            hash_seed=given if given.isdigit() else str(int.from_bytes(os.urandom(4), "big")),
            flags=tuple(flags_here()),
            recursion_limit=sys.getrecursionlimit(),
            warning_filters=tuple(_filters()),
            # A worker's log is read afterwards, when it is too late to ask for more.
            log_level=logging.INFO if root.level == logging.WARNING else root.level,
            log_format=_format_of(root),
            uses_absl=any(type(handler).__name__ == "ABSLHandler" for handler in root.handlers),
        )

    def apply(self) -> None:
        sys.setrecursionlimit(self.recursion_limit)
        warnings.resetwarnings()
        for action, message, name, module, line in self.warning_filters:
            category = getattr(builtins, name)
            warnings.filterwarnings(action, message, category, module, line, append=True)
        root = logging.getLogger()
        root.setLevel(self.log_level)
        if self.uses_absl:
            from absl import logging as absl_logging

            absl_logging.use_absl_handler()
        elif self.log_format is not None:
            text, dates, style = self.log_format
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter(text, dates, style))  # type: ignore[arg-type]
            root.addHandler(handler)


def check_executable(what: str) -> None:
    """Refuses to start a Python process where `sys.executable` is none.

    Args:
        what: It needs the process.

    Raises:
        LaunchError: Python is part of another program, which would only start itself again.
    """
    if getattr(sys, "frozen", False):
        raise LaunchError(
            f"{what} could not be started: this is a frozen application (sys.frozen), whose sys.executable,"
            f" {sys.executable!r}, starts the application and not Python. Launch with local_mt, or from a"
            " script that an installed Python runs"
        )
    if not sys.executable:
        raise LaunchError(
            f"{what} could not be started: sys.executable is {sys.executable!r}; set it to the path of a"
            " Python interpreter, or launch with local_mt"
        )


def flags_here() -> list[str]:
    """-O, -X dev, -W and the like, as they were given to this interpreter."""
    import subprocess

    # Private, but what multiprocessing uses for the same purpose; they are nowhere else.
    flags: list[str] = getattr(subprocess, "_args_from_interpreter_flags", list)()
    return flags


def _filters() -> list[tuple[Any, str, str, str, int]]:
    found = []
    filters: list[Any] = list(warnings.filters)
    for action, message, category, module, line in filters:
        name = category.__name__
        if getattr(builtins, name, None) is category:
            text, where = (getattr(each, "pattern", each) or "" for each in (message, module))
            found.append((action, text, name, where, line))
    return found


def _format_of(root: logging.Logger) -> tuple[str | None, str | None, str] | None:
    """That of its first handler with an ordinary formatter; packages set up their own, as absl does."""
    known: dict[str, Any] = dict(logging._STYLES)
    styles = {kind: style for style, (kind, _) in known.items()}
    for handler in root.handlers:
        formatter = handler.formatter
        if formatter is not None and type(formatter) is logging.Formatter:
            return formatter._fmt, formatter.datefmt, styles.get(type(formatter._style), "%")
    return None
