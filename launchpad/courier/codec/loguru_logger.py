"""Reducers for loguru's logger, whose handlers hold locks and files: the receiver uses its own logger."""

from __future__ import annotations

import importlib
import sys
from typing import Any


def reduced(obj: Any) -> Any:
    """Reduce a loguru logger, for pickle; return NotImplemented for anything else."""
    kind = type(obj)
    if (kind.__module__, kind.__name__) != ("loguru._logger", "Logger"):
        return NotImplemented
    logger: Any = sys.modules["loguru"].logger
    if obj is logger:
        return getattr, (sys.modules["loguru"], "logger")
    if obj._core is not logger._core:
        return NotImplemented
    return logger_with, obj._options


def logger_with(*options: Any) -> Any:
    """Return this process's logger with the options that `bind`, `opt` and `patch` have set."""
    logger: Any = importlib.import_module("loguru").logger
    return type(logger)(logger._core, *options)
