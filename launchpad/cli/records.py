"""The commands `logs` and `trace`, which show workers' output and workers' calls."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from launchpad.cli import runs
from launchpad.cli.command import CommandError, argument, command, run_argument
from launchpad.courier.telemetry.recording import MAX_S
from launchpad.launch.logs.log_files import LogFiles
from launchpad.launch.logs.tail import Tail
from launchpad.launch.output import printer
from launchpad.launch.rundir.record import RunRecord
from launchpad.telemetry.trace import Trace

_PAUSE_S = 0.1
_ATTEMPTS_S = 1.0
_DAY_S = 86_400
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": _DAY_S}
_COLORS = re.compile("\x1b\\[[0-9;]*m")
_ISO = re.compile(
    r"\W*(?:[A-Z]+\W+)?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
)
_ABSL = re.compile(r"[IWEF](\d{4} \d\d:\d\d:\d\d\.\d+)")
_MORE_S = 30.0
"""Seconds that the program may take, after the recording, to answer."""


@dataclass
class LogFilter:
    """A filter for the lines of one worker's log. It must get the lines in order.

    Logs are the output of workers, and don't have times of their own. But many lines begin with a time, for
    example those of `logging`, absl, loguru or structlog. A line without a time is as old as the line before
    it, because it may belong to a traceback. Lines before the first time are shown if the attempt has printed
    anything after `since`.

    Args:
        since: Show lines since this time, in seconds since 1970. None shows all lines.
        pattern: Show lines in which this pattern is found, ignoring colours. None shows all lines.
    """

    since: float | None
    pattern: re.Pattern[str] | None
    _at: float | None = None

    def passed(self, lines: Iterable[bytes]) -> list[bytes]:
        """Return the lines that pass the filter."""
        if self.since is None and self.pattern is None:
            return list(lines)
        return [line for line in lines if self._passes(line)]

    def _passes(self, line: bytes) -> bool:
        text = _COLORS.sub("", line.decode(errors="replace"))
        if self.since is not None:
            self._at = time_of(text) or self._at
            if self._at is not None and self._at < self.since:
                return False
        return self.pattern is None or self.pattern.search(text) is not None


def time_of(line: str) -> float | None:
    """Return the time with which a line begins, in seconds since 1970. None if it doesn't begin with a time.

    The time is local, unless the line has a time zone.
    """
    try:
        match = _ISO.match(line)
        if match:
            return datetime.fromisoformat(match[1]).timestamp()
        match = _ABSL.match(line)
        # This time has no year.
        if match:
            year = datetime.now().year
            at = datetime.strptime(f"{year} {match[1]}", "%Y %m%d %H:%M:%S.%f")
            if at.timestamp() > time.time() + _DAY_S:
                at = at.replace(year=year - 1)
            return at.timestamp()
    except ValueError:
        # The digits are not a valid time.
        pass
    return None


def time_since(text: str) -> float:
    """Parse an argument: `90s`, `10m`, `2h`, `1d` ago, or a time such as `2026-11-26T14:30`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
    if match:
        return time.time() - float(match[1]) * _UNITS[match[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a length of time, such as 10m (s, m, h, d), nor a time, 2026-11-26T14:30"
        ) from None


def _pattern(text: str) -> re.Pattern[str]:
    """Parse an argument: a Python regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None


@command(
    argument("-f", "--follow", action="store_true", help="go on until the program has ended"),
    argument(
        "--since",
        type=time_since,
        help="only lines that are no older: 90s, 10m, 2h, 1d, or a time; by the time with which a line"
        " begins, or one before it",
    ),
    argument("--grep", metavar="REGEX", type=_pattern, help="only lines in which this is found"),
    run_argument("of this run, also of one that has ended"),
    argument("label", metavar="LABEL", help="a group, or one worker of it"),
)
def logs(options: argparse.Namespace) -> None:
    """Print what the workers of a group, or one worker, have printed.

    Also for a run that has ended, while its logs are there. All attempts and parts, in order; each line with
    its worker's name in front if there are several.
    """
    run = runs.find_also_ended(options.run)
    if not run.is_running and not run.host:
        print(f"{run.run_id} has ended; its logs are in {run.logs}", file=sys.stderr)
    workers = runs.workers_of(run, options.label)
    since = options.since
    follow = _FollowingDetached if runs.is_detached(run) else _Following
    tails = {worker: follow(run, worker, since) for worker in workers}
    filters = {worker: LogFilter(since, options.grep) for worker in workers}
    prefixes = {workers[0]: ""}
    # The launching script prints the same prefixes.
    if len(workers) > 1:
        prefixes = printer.prefixes_of(sys.stdout, workers)
    while True:
        # Check if the run has ended before reading, so that its last lines are not missed.
        is_last = not options.follow or runs.has_ended(run)
        for worker, tail in tails.items():
            for lines in tail.new(is_last):
                _print(prefixes[worker], filters[worker].passed(lines))
        sys.stdout.flush()
        if is_last:
            break
        time.sleep(_PAUSE_S)
    for worker, tail in tails.items():
        # If the last line has no newline at its end, the loop above has not printed it.
        last_line = tail.rest()
        if last_line:
            _print(prefixes[worker], filters[worker].passed([last_line]))


class _Following:
    """The log lines of one worker as they are written, in all its attempts."""

    def __init__(self, run: RunRecord, worker: str, since: float | None) -> None:
        self._files = LogFiles(Path(run.logs))
        self._worker = worker
        self._since = since or 0.0
        self._tail: Tail | None = None
        self._checked_at = 0.0

    def new(self, is_last: bool) -> Iterator[Sequence[bytes]]:
        """Yield new lines. Look for new attempts only once a second, because this lists all log files."""
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


class _FollowingDetached:
    """The log lines of a worker on a cluster. The run's supervisor sends new lines."""

    def __init__(self, run: RunRecord, worker: str, since: float | None) -> None:
        self._detached = runs.detached_runs()[run.run_id]
        self._worker = worker
        self._n_characters = 0
        self._rest = b""

    def new(self, is_last: bool) -> Iterator[Sequence[bytes]]:
        text = self._detached.logs(self._worker, self._n_characters)
        self._n_characters += len(text)
        *lines, self._rest = (self._rest + text.encode()).split(b"\n")
        yield lines

    def rest(self) -> bytes:
        return self._rest


def _written_at(log: Path) -> float:
    """Return the time of the last write to a log, in seconds since 1970."""
    try:
        return log.stat().st_mtime
    except OSError:
        # There is no such file at the moment, because the log is being rotated.
        return time.time()


def _print(prefix: str, lines: Sequence[bytes]) -> None:
    """Print lines. On a terminal, leave out control sequences."""
    if not lines:
        return
    if printer.is_terminal(sys.stdout):
        sys.stdout.write(printer.prefixed(prefix, lines))
    else:
        sys.stdout.writelines(f"{prefix}{line.decode(errors='replace')}\n" for line in lines)


@command(
    run_argument(),
    argument("--seconds", type=float, default=5.0, help="for how long, up to 60 (default: 5)"),
    argument("-o", "--output", default="trace.json", metavar="FILE", help="default: trace.json"),
)
def trace(options: argparse.Namespace) -> None:
    """Record for some seconds what a program does: calls, waits, restarts, as a picture for https://ui.perfetto.dev."""
    if not 0 < options.seconds <= MAX_S:
        raise CommandError(f"--seconds is a number up to {MAX_S:g}, not {options.seconds:g}")
    run = runs.find(options.run)
    try:
        # Open the file before the recording, so that an error shows at once. Open it for appending, so that
        # its old contents stay until the recording has arrived.
        file = open(options.output, "a", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise CommandError(f"cannot write {options.output}: {error.strerror}") from error
    print(f"recording {run.run_id} for {options.seconds:g} s …", flush=True)
    with file, runs.connected(run) as client:
        recording = client.with_options(timeout_s=options.seconds + _MORE_S)
        recorded: Trace = recording.trace(options.seconds)
        # A pipe or a device cannot be truncated.
        with contextlib.suppress(OSError):
            file.truncate(0)
        recorded.write(file)
    print(f"{recorded}\nwritten to {options.output}: open it at https://ui.perfetto.dev")
