"""History: a record of which calls returned at the callers and which ran at the server, to compare them.

The record is a file of lines. Any number of threads and processes append lines to it. If they are killed,
the lines that they have written stay:

    ["begun", id, time]                   the caller is about to call
    ["acknowledged", id, time, outcome]   the call returned (`ok`) or raised (the exception's type)
    ["ran", id, time]                     the server ran the call
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OK = "ok"
_SHOWN = 5

CallId = int | str


@dataclass(frozen=True)
class Findings:
    """The result of comparing a history's two sides. Each list holds the ids of calls.

    Example:
        found = history.read()
        assert not found.lost and not found.repeated

    Attributes:
        acknowledged: How often callers saw each result: `ok`, `OutcomeUnknown`, …
        lost: Calls that returned `ok` but never ran.
        repeated: Calls that ran more than once.
        run_all_the_same: Calls that raised `NotSent` but ran.
        unanswered: Calls that began, but have no result.
    """

    acknowledged: Counter[str] = field(default_factory=Counter)
    lost: list[CallId] = field(default_factory=list)
    repeated: list[CallId] = field(default_factory=list)
    run_all_the_same: list[CallId] = field(default_factory=list)
    unanswered: list[CallId] = field(default_factory=list)


@dataclass
class RecordedCall:
    """One call of a history.

    Attributes:
        begun: The caller's `time.monotonic()` when it was about to call; None if only the server recorded it.
        ended: The caller's `time.monotonic()` when the call returned or raised; None if it has no result.
        outcome: Its result: `ok`, or the exception's type; "" if it has none.
        runs: How often the server ran it.
    """

    begun: float | None = None
    ended: float | None = None
    outcome: str = ""
    runs: int = 0


def read_calls(*paths: Path | str) -> dict[CallId, RecordedCall]:
    """Return the calls that are in these files together. Files that don't exist count as empty.

    Callers and servers that share no file system write to a file each.
    """
    calls: defaultdict[CallId, RecordedCall] = defaultdict(RecordedCall)
    for path in map(Path, paths):
        lines = path.read_text().splitlines() if path.exists() else []
        for event, call_id, at, *outcome in map(json.loads, lines):
            call = calls[call_id]
            if event == "ran":
                call.runs += 1
            elif event == "begun":
                call.begun = at
            else:
                call.ended = at
                call.outcome = outcome[0]
    return dict(calls)


def compare(calls: Mapping[Any, RecordedCall]) -> Findings:
    """Compare what the callers saw with what ran."""
    findings = Findings()
    for call_id, call in calls.items():
        if call.outcome:
            findings.acknowledged[call.outcome] += 1
        elif call.begun is not None:
            findings.unanswered.append(call_id)
        if call.outcome == OK and not call.runs:
            findings.lost.append(call_id)
        if call.outcome == "NotSent" and call.runs:
            findings.run_all_the_same.append(call_id)
        if call.runs > 1:
            findings.repeated.append(call_id)
    return findings


@dataclass(frozen=True)
class History:
    """A record of calls, to check that no call was lost or ran twice, even if clients and servers are killed.

    Example:
        history = lp.testing.History(tmp_path / "history")  # an argument of the nodes that call and serve

        class Account:
          def deposit(self, number, amount):                # in the server
            self.history.ran(number)
            self.balance += amount

        with contextlib.suppress(lp.courier.OutcomeUnknown), history.call(number):   # in a client
          account.deposit(number, 10)

        history.check()                                     # at the end

    Give every call an id of its own. If you repeat a call, and it must not run twice, give the repetition a
    new id. Any thread and process may use a history. Lines that were written before a kill are kept.

    Args:
        path: The file. It does not have to exist yet.
    """

    path: Path | str

    def ran(self, call: CallId) -> None:
        """Record that the server runs this call. Call this in the server's method, before it returns."""
        self._write("ran", call)

    @contextlib.contextmanager
    def call(self, call: CallId) -> Iterator[None]:
        """Record a call that the block makes and waits for. An exception in the block is not caught."""
        self._write("begun", call)
        try:
            yield
        except Exception as error:
            self._write("acknowledged", call, type(error).__name__)
            raise
        self._write("acknowledged", call, OK)

    def follow(self, call: CallId, future: Future[Any]) -> None:
        """Record a call whose result is a future. A cancelled future counts as `CancelledError`."""
        self._write("begun", call)

        def write(future: Future[Any]) -> None:
            error = CancelledError() if future.cancelled() else future.exception()
            self._write("acknowledged", call, OK if error is None else type(error).__name__)

        future.add_done_callback(write)

    def read(self) -> Findings:
        """Read the file and compare what callers saw with what ran."""
        return compare(read_calls(self.path))

    def check(self, *, may_repeat: bool = False, may_be_unanswered: bool = False) -> Findings:
        """Read the file and return the findings, or raise AssertionError if anything is wrong.

        Args:
            may_repeat: Allow calls that ran more than once. Use this if the methods are idempotent.
            may_be_unanswered: Allow calls without a result. Use this if clients are killed, too, before they
                can record the result.

        Raises:
            AssertionError: A call was lost, ran twice, ran although it raised `NotSent`, or was never
                answered.
        """
        findings = self.read()
        wrong = {
            "acknowledged, and never run": findings.lost,
            "run more than once": [] if may_repeat else findings.repeated,
            "NotSent, and run all the same": findings.run_all_the_same,
            "never answered": [] if may_be_unanswered else findings.unanswered,
        }
        parts = []
        for problem, calls in wrong.items():
            examples = ", ".join(map(str, calls[:_SHOWN]))
            more = f" and {len(calls) - _SHOWN:,} more" if len(calls) > _SHOWN else ""
            if calls:
                parts.append(f"{problem}: {examples}{more}")
        assert not parts, f"{'; '.join(parts)} (of {findings.acknowledged.total():,} calls)"
        return findings

    def _write(self, event: str, call: CallId, *more: str) -> None:
        line = json.dumps([event, call, time.monotonic(), *more]) + "\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)
