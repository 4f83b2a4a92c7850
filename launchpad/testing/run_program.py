"""A function that runs a whole program in a test, to its end, with a time limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchpad.launch.launch import launch
from launchpad.launch.registry import LaunchType
from launchpad.launch.running import Running
from launchpad.program import Program
from launchpad.resources import PythonProcess, Resources
from launchpad.restart_policy import RestartPolicy


def run(
    program: Program,
    timeout_s: float = 60.0,
    launch_type: LaunchType | str = "test_mt",
    local_resources: Mapping[str, PythonProcess] | None = None,
    *,
    restart: RestartPolicy | Mapping[str, RestartPolicy] | None = None,
    resources: Mapping[str, Resources] | None = None,
    **options: Any,
) -> Running:
    """Run a program to its end.

    Example:
        running = lp.testing.run(make_program(), timeout_s=30, launch_type="test_mp")
        assert "the counts agree" in running.logs("driver")

    Args:
        program: The program to run.
        timeout_s: The time limit in seconds.
        launch_type: `test_mt` for threads, `test_mp` for processes.
        local_resources: As for `lp.launch`.
        restart: As for `lp.launch`.
        resources: As for `lp.launch`.
        options: Further options of `lp.launch`.

    Returns:
        The Running of the ended program, for its logs and status.

    Raises:
        ProgramFailed: A worker failed.
        TimeoutError: The program didn't end in time, and was stopped.
    """
    running: Running = launch(
        program,
        launch_type,
        local_resources=local_resources,
        restart=restart,
        resources=resources,
        **options,
    )
    try:
        running.wait(timeout_s)
    finally:
        running.stop("the test is over")
    return running
