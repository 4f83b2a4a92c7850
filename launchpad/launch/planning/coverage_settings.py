"""Settings with which coverage measures workers that are processes, if it measures the script.

At the end of its process, each worker writes a data file of its own beside the script's, as `coverage run
--parallel-mode` does for a script. `coverage combine` merges the files.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from launchpad.courier.light_dataclass import dataclass

_OPTIONS = (
    "branch",
    "concurrency",
    "context",
    "cover_pylib",
    "dynamic_context",
    "include",
    "omit",
    "plugins",
    "relative_files",
    "source",
    "source_pkgs",
    "timid",
)
_OF_THE_SCRIPT = ["no-data-collected", "module-not-imported", "module-not-measured"]
"""Warnings that mean nothing for a worker, which runs only a part of the program."""


@dataclass(frozen=True)
class CoverageSettings:
    """Settings of the measurement that runs in the script.

    Attributes:
        options: The options in the section `run` of its configuration.
    """

    data_file: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def here(cls) -> CoverageSettings | None:
        """Read the settings; None if nothing is measured."""
        coverage: Any = sys.modules.get("coverage")
        running = coverage and coverage.Coverage.current()
        if not running:
            return None
        options = {}
        for name in _OPTIONS:
            value = running.get_option(f"run:{name}")
            if value:
                options[f"run:{name}"] = value
        return cls(os.path.abspath(running.get_option("run:data_file")), options)

    def apply(self) -> None:
        """Start to measure this process, unless coverage does so already (`patch = subprocess`)."""
        try:
            import coverage

            if coverage.Coverage.current() is not None:
                return
            measurement = coverage.Coverage(self.data_file, data_suffix=True, config_file=False)
            for name, value in self.options.items():
                measurement.set_option(name, value)
            measurement.set_option("run:disable_warnings", _OF_THE_SCRIPT)
            measurement.start()
        except Exception as error:  # coverage is not installed here, or is another version
            why = f"{type(error).__name__}: {error}"
            print(f"coverage does not measure this worker: {why}", file=sys.stderr)
            return
        # This is registered before all of the user's functions, so it is called after them.
        atexit.register(_save, measurement)


def _save(measurement: Any) -> None:
    measurement.stop()
    measurement.save()
