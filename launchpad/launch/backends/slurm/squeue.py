"""Slurm's commands, and what they say about a job. Everything here works without `sacct`."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from launchpad.errors import LaunchError

_log = logging.getLogger("launchpad.slurm")

_COMMAND_S = 30.0
_FORMAT = "%T|%r|%L|%l"
_LEFT = re.compile(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)")
_UNKNOWN = "Invalid job id"

_ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
}


@dataclass(frozen=True)
class JobState:
    """The state of a job.

    Attributes:
        state: Slurm's word for it, such as PENDING; empty if Slurm doesn't know the job any more.
        reason: Slurm's reason why it is pending or has ended, such as Resources; empty without one.
        left_s: The seconds until its time limit; None if it has none, or doesn't run.
        limit_s: The time limit in seconds; None if it has none.
    """

    state: str
    reason: str = ""
    left_s: float | None = None
    limit_s: float | None = None

    @property
    def has_ended(self) -> bool:
        return not self.state or self.state in _ENDED

    def __str__(self) -> str:
        state = self.state or "no longer known to Slurm"
        return f"{state} ({self.reason})" if self.reason else state


def parse(line: str) -> JobState:
    """Parse a line of `squeue --format=%T|%r|%L|%l`."""
    state, reason, left, limit = line.strip().split("|")
    is_running = state == "RUNNING"
    return JobState(
        state,
        "" if reason == "None" else reason,
        _seconds(left) if is_running else None,
        _seconds(limit),
    )


def _seconds(text: str) -> float | None:
    """Parse a time such as `1-02:03:04` or `4:05`. Return None for UNLIMITED and the like."""
    match = _LEFT.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60.0 + seconds


def state_of(job: str) -> JobState | None:
    """Return the state of a job; None if Slurm doesn't answer now."""
    command = ["squeue", "--noheader", f"--jobs={job}", "--states=all", f"--format={_FORMAT}"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.debug("squeue failed: %s", error)
        return None
    if printed.returncode == 0:
        lines = printed.stdout.splitlines()
        return parse(lines[0]) if lines else JobState("")
    if _UNKNOWN in printed.stderr:
        return JobState("")
    _log.debug("squeue failed: %s", printed.stderr.strip())
    return None


def own_jobs() -> set[str] | None:
    """Return the numbers of all of the user's jobs that have not ended; None if Slurm doesn't answer now."""
    command = ["squeue", "--noheader", f"--user={os.getuid()}", "--format=%A"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return set(printed.stdout.split()) if printed.returncode == 0 else None


def submit(script: str) -> str:
    """Submit a script, and return the number of the job.

    Raises:
        LaunchError: Slurm refuses the job.
    """
    try:
        printed = subprocess.run(
            ["sbatch", "--parsable", script], capture_output=True, text=True, timeout=_COMMAND_S
        )
    except subprocess.TimeoutExpired as error:
        raise LaunchError(
            f"Slurm has not taken the job within {_COMMAND_S:g} s: see `sinfo` and `squeue --me`"
        ) from error
    if printed.returncode:
        lines = [line.removeprefix("sbatch: ") for line in printed.stderr.splitlines()]
        why = "; ".join(line.removeprefix("error: ") for line in lines) or "it does not say why"
        raise LaunchError(
            f"Slurm refuses the job: {why}. `launchpad plan` shows what it was asked for"
        )
    number = printed.stdout.strip().partition(";")[0]
    _log.debug("submitted job %s", number)
    return number


def request(*command: str) -> str:
    """Run a command such as `scancel`. Return why it failed; empty if it didn't."""
    _log.debug("%s", " ".join(command))
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return printed.stderr.strip() if printed.returncode else ""


def lines_of(*command: str) -> list[str]:
    """Return the lines that a command prints; none if it fails."""
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return printed.stdout.splitlines()


def check_commands(launch_type: str, commands: Sequence[str]) -> None:
    """Raise LaunchError if this host lacks one of Slurm's commands."""
    for command in commands:
        if shutil.which(command) is None:
            raise LaunchError(
                f"launch type {launch_type!r} needs Slurm's command `{command}`, which is not on this host's"
                " PATH: launch from a login node of the cluster, or from a job"
            )
