"""Print what the workers of a group, or one worker, have printed.

Also for a run that has ended, while its logs are there. All attempts and parts, in order.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from launchpad.cli import log_filter, runs
from launchpad.cli.log_filter import LogFilter
from launchpad.cli.runs import CommandError
from launchpad.launch.logs.log_files import LogFiles
from launchpad.launch.logs.tail import Tail
from launchpad.launch.output import printer
from launchpad.launch.rundir import record
from launchpad.launch.rundir.record import RunRecord

_PAUSE_S = 0.1
_ATTEMPTS_S = 1.0


ARGUMENTS = {
    "-f --follow": {"action": "store_true", "help": "go on until the program has ended"},
    "--since": {
        "type": log_filter.since,
        "help": "only lines that are no older: 90s, 10m, 2h, 1d, or a time; by the time with which a line"
        " begins, or one before it",
    },
    "--grep": {
        "metavar": "REGEX",
        "type": log_filter.pattern,
        "help": "only lines in which this is found",
    },
    "run": {"metavar": "RUN", "nargs": "?", "help": "of this run, also of one that has ended"},
    "label": {"metavar": "LABEL", "help": "a group, or one worker of it"},
}


def run(options: argparse.Namespace) -> None:
    """Prints the logs; each line with its worker's name in front if there are several."""
    one = _chosen(options.run)
    workers = runs.workers_of(one, options.label)
    since = options.since
    follow = _FollowingDetached if runs.is_detached(one) else _Following
    tails = {worker: follow(one, worker, since) for worker in workers}
    filters = {worker: LogFilter(since, options.grep) for worker in workers}
    prefixes = {workers[0]: ""}
    if len(workers) > 1:  # as in the launching script
        prefixes = printer.prefixes_of(sys.stdout, workers)
    while True:
        # Before the lines are read, so that the last ones of the run are among them.
        is_last = not options.follow or runs.has_ended(one)
        for worker, tail in tails.items():
            for lines in tail.new(is_last):
                _print(prefixes[worker], filters[worker].passed(lines))
        sys.stdout.flush()
        if is_last:
            break
        time.sleep(_PAUSE_S)
    for worker, tail in tails.items():
        if rest := tail.rest():  # the last line, if no newline ended it
            _print(prefixes[worker], filters[worker].passed([rest]))


def _chosen(wanted: str | None) -> RunRecord:
    """A run that has not ended, if there is one; else one that has, the last if none is named."""
    running = runs.matching(runs.candidates(wanted), wanted)
    if running:
        return runs.only(running, wanted, running)
    over = record.ended()
    found = runs.matching(over, wanted)
    if not over:
        raise CommandError("no program of yours runs, and there are no logs of one that has ended")
    if wanted is None or any(run.program == wanted for run in found):
        found = found[-1:]
    one = runs.only(found, wanted, over)
    print(f"{one.run_id} has ended; its logs are in {one.logs}", file=sys.stderr)
    return one


class _FollowingDetached:
    """The same for a worker whose logs are on a cluster: its supervisor sends what is new."""

    def __init__(self, one: RunRecord, worker: str, since: float | None) -> None:
        self._detached, self._worker = runs.detached_runs()[one.run_id], worker
        self._shown = 0
        self._rest = b""

    def new(self, is_last: bool) -> Iterator[Sequence[bytes]]:
        text = self._detached.logs(self._worker, self._shown)
        self._shown += len(text)
        *lines, self._rest = (self._rest + text.encode()).split(b"\n")
        yield lines

    def rest(self) -> bytes:
        return self._rest


class _Following:
    """One worker's lines as they come, over all its attempts."""

    def __init__(self, one: RunRecord, worker: str, since: float | None) -> None:
        self._files, self._worker, self._since = LogFiles(Path(one.logs)), worker, since or 0.0
        self._tail: Tail | None = None
        self._checked_at = 0.0

    def new(self, is_last: bool) -> Iterator[Sequence[bytes]]:
        """Looks for new attempts only once a second, as that goes through all files."""
        now = time.monotonic()
        if is_last or now > self._checked_at + _ATTEMPTS_S:
            self._checked_at = now
            for attempt in self._files.attempts(self._worker):
                log = self._files.path(self._worker, attempt)
                if self._tail is None and _written_at(log) < self._since:
                    continue
                self._tail = self._tail or Tail(log)
                self._tail.follow(log)
        while self._tail is not None and self._tail.has_more():
            yield self._tail.lines()

    def rest(self) -> bytes:
        return self._tail.remainder() if self._tail is not None else b""


def _written_at(log: Path) -> float:
    """When it was last written to, in seconds since 1970."""
    try:
        return log.stat().st_mtime
    except OSError:  # just being rotated
        return time.time()


def _print(prefix: str, lines: Sequence[bytes]) -> None:
    """Prints lines: on a terminal without control sequences, else as they are."""
    if not lines:
        return
    if printer.is_terminal(sys.stdout):
        sys.stdout.write(printer.prefixed(prefix, lines))
    else:
        sys.stdout.writelines(f"{prefix}{line.decode(errors='replace')}\n" for line in lines)
