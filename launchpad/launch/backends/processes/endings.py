"""How a worker ended: what it said itself and what the kernel says, made into one outcome.

said     kernel                 outcome
──────────────────────────────────────────────────────────────────────────────────────────
yes      exit, or our kill      what it said
success  a signal               failed in `stop`: killed by SIGSEGV after its work was done
no       our kill               stopped: did not stop in time
no       a signal               failed: killed by SIGKILL, not by the launcher
no       exit                   failed: exited with code 3 without saying why
"""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass, replace

from launchpad import outcome
from launchpad.outcome import Outcome

_LIMITS = {
    errno.EAGAIN: "the limit on processes and threads (ulimit -u, or pids.max of the container)",
    errno.EMFILE: "the limit on open files of one process (ulimit -n)",
    errno.ENFILE: "the limit on open files of this machine (fs.file-max)",
    errno.ENOMEM: "the memory of this machine or container",
    errno.ENOSPC: "the space on the disk",
}


@dataclass
class Attempt:
    """What the launcher knows of one attempt of a worker."""

    worker: str
    number: int
    pid: int = 0
    phase: str = "start"
    killed: bool = False
    said: Outcome | None = None

    def outcome(self, kind: str, cause: str, phase: str = "") -> Outcome:
        """An outcome that the worker has not said itself."""
        phase = phase or self.phase
        return Outcome(
            self.worker, kind, phase, self.number, cause, pid=self.pid, host=os.uname().nodename
        )


def ending(attempt: Attempt, status: int, peak_bytes: int) -> Outcome:
    """The outcome of an attempt whose process has ended with `status`, as wait() gives it."""
    code = os.waitstatus_to_exitcode(status)
    name = _signal_name(-code) if code < 0 else ""
    ended = replace(_ending(attempt, code, name), exit_code=code, signal=name, pid=attempt.pid)
    if code in outcome.NO_RESTART_CODES:
        ended = replace(ended, may_restart=False)
    if name == "SIGKILL" and ended.is_failure:
        peak = f"{peak_bytes / 2**20:,.0f} MiB"
        ended = replace(ended, hint=f"its peak memory was {peak}; if that is too much, see `dmesg`")
    return ended


def not_started(attempt: Attempt, error: Exception) -> Outcome:
    """The outcome of an attempt that never had a process of its own."""
    return replace(
        attempt.outcome(outcome.FAILED, f"could not be started: {error}", "start"),
        error_type=type(error).__name__,
        hint=limit_behind(error),
    )


def limit_behind(error: Exception) -> str:
    """What to look at when the system refuses."""
    number = errno.EAGAIN if "start new thread" in str(error) else getattr(error, "errno", 0)
    limit = _LIMITS.get(number)
    return f"this is {limit}" if limit else ""


def _ending(attempt: Attempt, code: int, signal_name: str) -> Outcome:
    said = attempt.said
    if said is not None and (said.is_failure or not signal_name or attempt.killed):
        return said
    if said is not None:
        return attempt.outcome(
            outcome.FAILED, f"killed by {signal_name} after its work was done", "stop"
        )
    if attempt.killed:
        return attempt.outcome(outcome.STOPPED, "did not stop in time; killed")
    if signal_name:
        return attempt.outcome(outcome.FAILED, f"killed by {signal_name}, not by the launcher")
    return attempt.outcome(outcome.FAILED, f"exited with code {code} without saying why")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
