"""The outcome of a worker's process, from what the worker itself reported and what the kernel says.

reported kernel                 outcome
──────────────────────────────────────────────────────────────────────────────────────────
yes      exit                   as reported
success  our kill               stopped: cut off, with what it still waited for
failure  our kill               as reported, with a hint that it was cut off
success  a signal               failed in `stop`: killed by SIGSEGV after its work was done
no       our kill               stopped: did not stop in time
no       a signal               failed: killed by SIGKILL, not by the launcher
no       SIGKILL, and it counts failed: killed by the kernel (SIGKILL): out of memory
no       exit                   failed: exited with code 3 without saying why

The kernel doesn't say which process sent a signal. It says only when it killed a process itself, for a crash
or for lack of memory.
"""

from __future__ import annotations

import errno
import os
from dataclasses import replace

from launchpad import outcome
from launchpad.courier import formatting
from launchpad.courier.light_dataclass import dataclass
from launchpad.launch.backends.processes import os_process
from launchpad.launch.backends.processes.messages import ChildExited
from launchpad.launch.devices import out_of_memory
from launchpad.outcome import Outcome

_LIMITS = {
    errno.EAGAIN: "the limit on processes and threads (ulimit -u, or pids.max of the container)",
    errno.EDQUOT: "your quota of the disk",
    errno.EFBIG: "the limit on the size of a file (ulimit -f)",
    errno.EMFILE: "the limit on open files of one process (ulimit -n)",
    errno.ENFILE: "the limit on open files of this machine (fs.file-max)",
    errno.ENOMEM: "the memory of this machine or container",
    errno.ENOSPC: "the space on the disk",
}

_HINT = (
    "a worker has its grace period for what Python waits for at an exit, `stop_grace_s` of its RestartPolicy"
    " or --lp_termination_notice_secs; its log ends with the stacks of its threads"
)


@dataclass
class ProcessAttempt:
    """The launcher's record of one attempt of a worker."""

    worker: str
    number: int
    pid: int = 0
    phase: str = "start"
    awaits: str = ""
    """What the process waits for before it exits, as the process itself has reported."""
    killed: bool = False
    reported: Outcome | None = None

    def outcome(self, kind: str, cause: str, phase: str = "") -> Outcome:
        """Return an outcome that the worker has not reported itself."""
        host = os.uname().nodename
        phase = phase or self.phase
        return Outcome(self.worker, kind, phase, self.number, cause, pid=self.pid, host=host)


def ending(attempt: ProcessAttempt, child_exit: ChildExited) -> Outcome:
    """Return the outcome of an attempt whose process has ended."""
    code = os.waitstatus_to_exitcode(child_exit.status)
    name = os_process.signal_name(-code) if code < 0 else ""
    report = attempt.reported
    if report is not None and (report.is_failure or not name):
        end = report
        if name and attempt.killed:
            end = replace(end, hint="; ".join(filter(None, (end.hint, _cut_off(attempt)))))
    elif attempt.killed and (report is not None or attempt.awaits):
        end = attempt.outcome(outcome.STOPPED, _cut_off(attempt), "stop")
        end = replace(end, hung=True, hint=_HINT)
    elif report is not None:
        end = attempt.outcome(outcome.FAILED, f"killed by {name} after its work was done", "stop")
    elif attempt.killed:
        end = attempt.outcome(outcome.STOPPED, "did not stop in time; killed")
        end = replace(end, hung=True)
    elif name:
        end = attempt.outcome(outcome.FAILED, f"killed by {name}, not by the launcher")
    else:
        end = attempt.outcome(outcome.FAILED, f"exited with code {code} without saying why")
    end = replace(
        end, exit_code=code, signal=name, pid=attempt.pid, peak_bytes=child_exit.peak_bytes
    )
    if code in outcome.NO_RESTART_CODES:
        end = replace(end, may_restart=False)
    return _with_memory(end, child_exit) if end.is_failure else end


def _cut_off(attempt: ProcessAttempt) -> str:
    awaits = attempt.awaits or "its end"
    return f"cut off after its work had ended, while its process waited for {awaits}"


def _with_memory(end: Outcome, child_exit: ChildExited) -> Outcome:
    """If lack of memory may have caused a failure, add what is known about the worker's memory."""
    peak = f"its peak memory was {formatting.size(child_exit.peak_bytes)}"
    limit = out_of_memory.limit_bytes()
    if limit is not None:
        peak += f", the limit of its cgroup is {formatting.size(limit)}"
    if child_exit.out_of_memory and end.signal == "SIGKILL":
        cause = "killed by the kernel (SIGKILL): out of memory"
        hint = f"{peak}; give it more, or have it keep less"
        return replace(end, cause=cause, hint=hint, out_of_memory=True)
    if child_exit.out_of_memory:
        hint = (
            "while it ran, the kernel killed a process for lack of memory, perhaps one of its own"
        )
        return replace(end, hint="; ".join(filter(None, (end.hint, hint, peak))))
    if end.signal == "SIGKILL":
        is_known = child_exit.out_of_memory is not None
        why = "see also `dmesg`"
        if is_known:
            why = "the kernel has killed no process for lack of memory"
        return replace(end, hint=f"{peak}; {why}")
    return end


def not_started(worker: str, number: int, error: Exception, pid: int = 0) -> Outcome:
    """Return the outcome of an attempt that never had a process of its own."""
    cause = f"could not be started: {error}"
    end = ProcessAttempt(worker, number, pid).outcome(outcome.FAILED, cause)
    return replace(end, error_type=type(error).__name__, hint=limit_behind(error))


def cannot_start(worker: str, number: int, why: str) -> Outcome:
    """Return the outcome of an attempt that isn't restarted, because it would fail again in the same way."""
    end = ProcessAttempt(worker, number).outcome(outcome.FAILED, why)
    return replace(end, error_type="PreloadError", may_restart=False)


def limit_behind(error: Exception) -> str:
    """Return a sentence that names the limit of the system behind an error; empty if no limit caused it."""
    number = errno.EAGAIN if "start new thread" in str(error) else getattr(error, "errno", 0)
    limit = _LIMITS.get(number)
    return f"this is {limit}" if limit else ""
