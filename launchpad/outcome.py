"""How a worker ended, as data, and the report that a person reads."""

from __future__ import annotations

from dataclasses import dataclass

SUCCEEDED, FAILED, STOPPED, LOST = "succeeded", "failed", "stopped", "lost"
"""It did its work; it raised or died by itself; it ended because it was told to; nobody can say."""

_SHOWN_LINES = 20

NO_RESTART_CODES = range(42, 50)
"""A worker that exits with one of these is not started again, whatever its policy says."""

PHASES = ("start", "import", "init", "run", "stop")
"""How far a worker had come: being started, unpickling its node, in constructors, running, closing."""


@dataclass(frozen=True)
class Outcome:
    """How one attempt of one worker ended.

    `cause` is one line ("ValueError: boom", "killed by SIGKILL"); `traceback` is the worker's own, as
    text, empty where there is none. `blames` names the worker whose death or absence this failure
    reports, so that a consequence is not taken for a cause. `raised_in` names the worker in which an
    exception that came out of a call was raised. `may_restart` is False where the worker has asked for no
    other attempt; `earlier` are the ends of attempts that a restart had covered, a line each.
    """

    worker: str
    kind: str
    phase: str = "run"
    attempt: int = 1
    cause: str = ""
    error_type: str = ""
    traceback: str = ""
    hint: str = ""
    blames: str = ""
    raised_in: str = ""
    exit_code: int | None = None
    signal: str = ""
    pid: int = 0
    host: str = ""
    log_path: str = ""
    last_lines: tuple[str, ...] = ()
    may_restart: bool = True
    earlier: tuple[str, ...] = ()

    @property
    def is_failure(self) -> bool:
        """Whether this end must not be passed over in silence."""
        return self.kind in (FAILED, LOST)

    def headline(self) -> str:
        """One line: who, when, why."""
        origin = (
            f" (it began in {self.raised_in})" if self.raised_in not in ("", self.worker) else ""
        )
        return f"{self.worker} {self.kind} in {self.phase} (attempt {self.attempt}): {self.cause}{origin}"


def first_cause(failures: list[Outcome]) -> Outcome:
    """The failure that explains the others: the earliest that does not merely report another's.

    A client of a dead worker often is heard of before the dead worker is; it says whom it blames.
    """
    failed = {outcome.worker for outcome in failures}
    independent = [o for o in failures if o.blames not in failed or o.blames == o.worker]
    return (independent or failures)[0]


def report(program: str, first: Outcome, consequences: tuple[Outcome, ...] = ()) -> str:
    """The failure as text for a terminal: first cause first, then its traceback, log and consequences."""
    lines = [f"program {program!r} failed: {first.headline()}"]
    lines += _block("traceback", first.traceback)
    lines += _block("last lines of its output", "\n".join(_without_traceback(first)))
    lines += [f"  hint: {first.hint}"] if first.hint else []
    lines += _block("failed before it", "\n".join(first.earlier))
    lines += _block("failed after it", "\n".join(o.headline() for o in consequences))
    lines += [f"  host: {first.host}, pid {first.pid}"] if first.host else []
    lines += [f"  log:  {first.log_path}"] if first.log_path else []
    return "\n".join(lines)


def _without_traceback(first: Outcome) -> list[str]:
    """The last lines but for the traceback at their end, which the report shows by itself."""
    lines = list(first.last_lines)
    for line in reversed(first.traceback.splitlines()):
        if lines and lines[-1] == line:
            lines.pop()
    return lines[-_SHOWN_LINES:]


def _block(title: str, text: str) -> list[str]:
    """An indented paragraph under a title; nothing where there is no text."""
    if not text.strip():
        return []
    return [f"  {title}:", *("    " + line for line in text.rstrip().splitlines())]
