"""Outcome: the end of a worker's attempt as data, and the failure report for people."""

from __future__ import annotations

from launchpad.courier import formatting
from launchpad.courier.light_dataclass import dataclass

SUCCEEDED = "succeeded"
FAILED = "failed"
STOPPED = "stopped"
LOST = "lost"
"""The kinds of outcome, in this order: the worker did its work; it raised or died by itself; it ended because
it was asked to; how it ended is unknown."""

_SHOWN_LINES = 20

RAISED = 1
CRASHED = 3
OUT_OF_MEMORY = 4
HUNG = 5
NOT_THERE = 6
"""Exit codes, in this order: a worker raised an exception; it was killed by a signal or exited without a
report; it ran out of memory; it hung in start or stop; it never started or was lost. 2 is left to wrong
command lines."""

NO_RESTART_CODES = range(42, 50)
"""Exit codes after which a worker is not started again, whatever its policy."""

PHASES = ("start", "import", "init", "run", "stop")
"""The phases of a worker, in order: it is started, unpickles its node, runs constructors, runs, closes."""


@dataclass(frozen=True)
class Outcome:
    """The end of one attempt of one worker.

    It has more than 15 fields because it is one flat record: users and JSON read the fields by these names.

    `cause` is one line ("ValueError: boom", "killed by SIGKILL"). `traceback` is the worker's traceback as
    text; empty if it left no traceback. `blames` names the worker whose death or absence caused this failure,
    so that reports don't take a consequence for the cause. `raised_in` names the worker in which an exception
    was first raised, if it reached this worker through a call. `may_restart` is False if the worker asked not
    to be restarted. `earlier` has one line for each earlier attempt after which the worker was restarted.
    `log_path` and `last_lines` belong to the worker's log, or to another file that shows the reason; empty if
    there is no such file. `hung` is True if the worker was killed, or given up, because it made no progress.
    `peak_bytes` is 0 if it is not known.

    Example:
        try:
            lp.run(program)
        except lp.ProgramFailed as error:
            for outcome in (error.outcome, *error.consequences):
                print(outcome.worker, outcome.kind, outcome.phase, outcome.cause)
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
    out_of_memory: bool = False
    hung: bool = False
    peak_bytes: int = 0

    @property
    def is_failure(self) -> bool:
        """True if the worker failed or was lost."""
        return self.kind in (FAILED, LOST)

    def headline(self) -> str:
        """Return one line that says which worker ended, in which phase, and why."""
        is_of_another = self.raised_in not in ("", self.worker)
        origin = f" (it began in {self.raised_in})" if is_of_another else ""
        return f"{self.worker} {self.kind} in {self.phase} (attempt {self.attempt}): {self.cause}{origin}"


def exit_status(outcome: Outcome) -> int:
    """Return the exit code of a script whose program ended because of this outcome."""
    if outcome.out_of_memory:
        return OUT_OF_MEMORY
    if outcome.hung:
        return HUNG
    if not outcome.is_failure:
        return 0
    if outcome.kind == LOST or outcome.phase == "start":
        return NOT_THERE
    return RAISED if outcome.error_type else CRASHED


def first_cause(failures: list[Outcome]) -> Outcome:
    """Return the failure that explains the others: the earliest that doesn't blame another failed worker.

    When a worker dies, the failure of a client that called it is often reported first. The client's outcome
    then blames the dead worker.
    """
    failed_workers = {outcome.worker for outcome in failures}
    independent = [o for o in failures if o.blames not in failed_workers or o.blames == o.worker]
    return (independent or failures)[0]


def report(program: str, first: Outcome, consequences: tuple[Outcome, ...] = ()) -> str:
    """Return the failure as text for a terminal: the first cause, its traceback and log, the consequences."""
    output = list(first.last_lines)
    # The report shows the traceback in a block of its own, so drop it from the end of the output.
    for line in reversed(first.traceback.splitlines()):
        if output and output[-1] == line:
            output.pop()
    lines = [f"program {program!r} failed: {first.headline()}"]
    lines += _block("traceback", first.traceback)
    lines += _block("last lines of its output", "\n".join(output[-_SHOWN_LINES:]))
    lines += [f"  hint: {first.hint}"] if first.hint else []
    lines += _block("failed before it", "\n".join(first.earlier))
    lines += _block("failed after it", "\n".join(o.headline() for o in consequences))
    lines += [f"  host: {first.host}, pid {first.pid}"] if first.host else []
    lines += [f"  log:  {first.log_path}"] if first.log_path else []
    return "\n".join(map(formatting.coloured, lines))


def _block(title: str, text: str) -> list[str]:
    """Return the lines of an indented paragraph under a title; none if there is no text."""
    if not text.strip():
        return []
    return [f"  {title}:", *("    " + line for line in text.rstrip().splitlines())]
