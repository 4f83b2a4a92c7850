"""Slurm's commands, and what they say about a job. Everything here works without `sacct`."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from launchpad.errors import LaunchError

_log = logging.getLogger("launchpad.slurm")

_COMMAND_S = 30.0
_FORMAT = "%i|%A|%T|%r|%L|%l"
"""The first is ARRAY_TASK in a job array, and the second always a number."""

_N_FIELDS = _FORMAT.count("|") + 1
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


class _CommandError(Exception):
    """One of Slurm's commands failed. The text is what it says about that."""


@dataclass(frozen=True)
class JobState:
    """The state of a job.

    Attributes:
        state: Slurm's word for it, such as PENDING; empty if Slurm doesn't know the job any more.
        reason: Slurm's reason why it is pending or has ended, such as Resources; empty without one.
        left_s: The seconds until its time limit; None if it has none, or doesn't run.
        limit_s: The time limit in seconds; None if it has none.
        task: ARRAY_TASK if the job is a task of a job array, such as 17_3. Slurm's commands take this number
            for the task alone; they may take the job's own number for the whole array.
    """

    state: str
    reason: str = ""
    left_s: float | None = None
    limit_s: float | None = None
    task: str = ""

    @property
    def has_ended(self) -> bool:
        return not self.state or self.state in _ENDED

    def __str__(self) -> str:
        state = self.state or "no longer known to Slurm"
        return f"{state} ({self.reason})" if self.reason else state


def parse(line: str, job: str) -> JobState | None:
    """Parse a line of `squeue` about a job; None if the line is about another job, or isn't one of a job."""
    fields = line.strip().split("|")
    if len(fields) != _N_FIELDS or job not in fields[:2]:
        return None
    name, _, state, reason, left, limit = fields
    is_running = state == "RUNNING"
    return JobState(
        state,
        "" if reason == "None" else reason,
        _seconds(left) if is_running else None,
        _seconds(limit),
        name if "_" in name else "",
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
    try:
        # Of a job array, this may also list other tasks.
        printed = _run(
            "squeue", "--noheader", f"--jobs={job}", "--states=all", f"--format={_FORMAT}"
        )
    except _CommandError as error:
        if _UNKNOWN in str(error):
            return JobState("")
        _log.debug("squeue failed: %s", error)
        return None
    if not printed.strip():
        return JobState("")
    for line in printed.splitlines():
        state = parse(line, job)
        if state is not None:
            return state
    _log.debug("squeue says nothing about job %s: %r", job, printed)
    return None


def submit(script: str) -> str:
    """Submit a script, and return the number of the job.

    Raises:
        LaunchError: Slurm refuses the job.
    """
    try:
        printed = _run("sbatch", "--parsable", script)
    except _CommandError as error:
        lines = [line.removeprefix("sbatch: ") for line in str(error).splitlines()]
        why = "; ".join(line.removeprefix("error: ") for line in lines)
        raise LaunchError(
            f"Slurm refuses the job: {why}. `launchpad plan` shows what it was asked for"
        ) from error
    return printed.strip().partition(";")[0]


def request(*command: str) -> str:
    """Run a command such as `scancel`. Return why it failed; empty if it didn't."""
    try:
        _run(*command)
    except _CommandError as error:
        return str(error)
    return ""


def lines_of(*command: str) -> list[str]:
    """Return the lines that a command prints; none if it fails."""
    try:
        return _run(*command).splitlines()
    except _CommandError as error:
        _log.debug("%s", error)
        return []


def _run(*command: str) -> str:
    """Run one of Slurm's commands, and return what it prints.

    Raises:
        _CommandError: it can't be run, doesn't end in time, or fails.
    """
    _log.debug("%s", " ".join(command))
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            # Ctrl-C in a terminal must not end `sbatch` between submitting and printing the number.
            start_new_session=True,
        )
    except subprocess.TimeoutExpired as error:
        raise _CommandError(f"{command[0]} has not answered within {_COMMAND_S:g} s") from error
    except OSError as error:
        raise _CommandError(str(error)) from error
    if done.returncode:
        raise _CommandError(done.stderr.strip() or f"{command[0]} does not say why it failed")
    return done.stdout


def check_commands(launch_type: str, commands: Sequence[str]) -> None:
    """Raise LaunchError if this host lacks one of Slurm's commands."""
    for command in commands:
        if shutil.which(command) is None:
            raise LaunchError(
                f"launch type {launch_type!r} needs Slurm's command `{command}`, which is not on this host's"
                " PATH: launch from a login node of the cluster, or from a job"
            )
