"""loguru's logger travels as the one that the receiver's loguru has: its handlers hold locks and files."""

from __future__ import annotations

import importlib
import sys
from typing import Any


def reduced(obj: Any) -> Any:
    """Reduces a logger that loguru has made, for pickle; NotImplemented for anything else."""
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
    """Makes this process's logger with what `bind`, `opt` and `patch` have added."""
    own: Any = importlib.import_module("loguru").logger
    return type(own)(own._core, *options)
