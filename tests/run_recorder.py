"""Hooks of pytest that write the record of a run, and fail tests that use too much processor time."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.run_record import PATH_VARIABLE, TestRow

MAX_CPU_S = 20.0
"""The processor time that a test of `make test` may use; what needs more is for `make test-all`."""

OTHER_LANES = {"ray", "spark", "kubernetes", "hosts", "browser", "endurance", "frameworks"}
"""The marks of tests that `make test` does not run."""

_BEGAN_AT = pytest.StashKey[float]()
_CPU = "cpu_s"


class Recorder:
    """A pytest plugin that appends to the record. In a parallel run, the controller has it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[str, TestRow] = {}
        path.parent.mkdir(parents=True, exist_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the phases of a test, and write its row after the last one."""
        row = self._rows.setdefault(report.nodeid, TestRow(report.nodeid, "passed"))
        row.seconds += report.duration
        row.cpu_s += sum(value for name, value in report.user_properties if name == _CPU)
        if report.failed:
            row.outcome = "failed"
            row.failure += f"{report.longreprtext}\n"
        elif report.skipped:
            row.outcome = "skipped"
        is_last = report.when not in ("setup", "call")  # "???" if the process died that ran it
        if is_last:
            self._append(asdict(self._rows.pop(report.nodeid)))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write a row for a file whose tests could not be collected."""
        if report.failed:
            self._append(
                asdict(TestRow(report.nodeid, "not collected", failure=report.longreprtext))
            )

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the exit status, without which the record is that of a run that was cut off."""
        self._append({"session": int(exitstatus)})

    def _append(self, row: dict[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(f"{json.dumps(row)}\n")


def pytest_configure(config: pytest.Config) -> None:
    """Record the run if a lane asked for it."""
    # Removed, since what the tests start may be another pytest, whose tests are not of this run.
    path = os.environ.pop(PATH_VARIABLE, "")
    if path:
        config.pluginmanager.register(Recorder(config.rootpath / path), "run record")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Note the processor time before the first fixture is set up."""
    item.stash[_BEGAN_AT] = _cpu_now()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the processor time to the last report of a test; fail it if that is too much."""
    report = yield
    if call.when == "teardown":
        cpu_s = _cpu_now() - item.stash[_BEGAN_AT]
        report.user_properties.append((_CPU, cpu_s))
        is_limited = not any(item.get_closest_marker(mark) for mark in OTHER_LANES)
        if report.passed and is_limited and cpu_s > MAX_CPU_S:
            report.outcome = "failed"
            report.longrepr = (
                f"{item.nodeid} used {cpu_s:.1f} s of processor time, and a test of `make test` may use"
                f" {MAX_CPU_S:g} s: make it cheaper, or mark it `endurance`"
            )
    return report


def _cpu_now() -> float:
    """The processor time of this process and of all of its descendants that have ended."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
