"""History: what callers were told of their calls, and which calls ran, compared afterwards.

A file of lines, appended to by any number of threads and processes, also by those that are killed:

    ["begun", id, time]    the caller is about to call
    ["told", id, time, outcome]   and has its answer, `ok`, or an exception, its type
    ["ran", id, time]      the server has run it
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OK = "ok"
_SHOWN = 5

CallId = int | str


@dataclass(frozen=True)
class Findings:
    """What a history says. Each list is of calls, by their ids.

    Attributes:
      told: How often callers were told what: `ok`, `OutcomeUnknown`, …
      lost: Told `ok`, and never run.
      repeated: Run more than once.
      run_all_the_same: Told `NotSent`, and run.
      unanswered: Begun, and never told anything.
    """

    told: Counter[str] = field(default_factory=Counter)
    lost: list[CallId] = field(default_factory=list)
    repeated: list[CallId] = field(default_factory=list)
    run_all_the_same: list[CallId] = field(default_factory=list)
    unanswered: list[CallId] = field(default_factory=list)


@dataclass(frozen=True)
class History:
    """Says whether calls were lost, or ran twice, whatever happened to clients and servers.

    Example:
      history = lp.testing.History(tmp_path / "history")  # an argument of the nodes that call and serve

      class Ledger:
        def deposit(self, number, amount):                # in the server
          self.history.ran(number)
          self.balance += amount

      with contextlib.suppress(lp.courier.OutcomeUnknown), history.call(number):   # in a client
        ledger.deposit(number, 10)

      history.check()                                     # when all is over

    Every call has an id of its own; a call that is made again has another one, if it must not run twice.
    Safe in any thread and process; what was written before a kill is there.

    Args:
      path: The file; it need not be there.
    """

    path: Path | str

    def ran(self, call: CallId) -> None:
        """The server runs this call. To be said in the method, before it returns."""
        self._write("ran", call)

    @contextlib.contextmanager
    def call(self, call: CallId) -> Iterator[None]:
        """The block makes this call, and waits for its answer. What it raises is raised."""
        self._write("begun", call)
        try:
            yield
        except Exception as error:
            self._write("told", call, type(error).__name__)
            raise
        self._write("told", call, OK)

    def follow(self, call: CallId, future: Future[Any]) -> None:
        """The same for a future. One that is cancelled is told `CancelledError`."""
        self._write("begun", call)
        future.add_done_callback(lambda done: self._write("told", call, _outcome(done)))

    def read(self) -> Findings:
        """What it says."""
        begun: dict[CallId, None] = {}
        told: dict[CallId, str] = {}
        ran: Counter[CallId] = Counter()
        for event, call, _, *outcome in self._lines():
            if event == "ran":
                ran[call] += 1
            elif event == "begun":
                begun[call] = None
            else:
                told[call] = outcome[0]
        return Findings(
            told=Counter(told.values()),
            lost=[call for call, what in told.items() if what == OK and not ran[call]],
            repeated=[call for call, times in ran.items() if times > 1],
            run_all_the_same=[c for c, what in told.items() if what == "NotSent" and ran[c]],
            unanswered=[call for call in begun if call not in told],
        )

    def check(self, *, may_repeat: bool = False, may_be_unanswered: bool = False) -> Findings:
        """What it says, if all is well.

        Args:
          may_repeat: The methods are idempotent, so a call may run more than once.
          may_be_unanswered: Clients were killed too, and could not write down what they were told.

        Raises:
          AssertionError: A call was lost, ran twice, ran although it was not sent, or was never answered.
        """
        found = self.read()
        wrong = {
            "told ok, and never run": found.lost,
            "run more than once": [] if may_repeat else found.repeated,
            "told NotSent, and run all the same": found.run_all_the_same,
            "never answered": [] if may_be_unanswered else found.unanswered,
        }
        text = "; ".join(f"{what}: {_some(calls)}" for what, calls in wrong.items() if calls)
        assert not text, f"{text} (of {found.told.total():,} calls)"
        return found

    def _write(self, event: str, call: CallId, *more: str) -> None:
        line = json.dumps([event, call, time.monotonic(), *more]) + "\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)

    def _lines(self) -> Iterator[list[Any]]:
        if Path(self.path).exists():
            with open(self.path) as file:
                yield from map(json.loads, file)


def _outcome(done: Future[Any]) -> str:
    if done.cancelled():
        return "CancelledError"
    error = done.exception()
    return OK if error is None else type(error).__name__


def _some(calls: list[CallId]) -> str:
    shown = ", ".join(map(str, calls[:_SHOWN]))
    return shown if len(calls) <= _SHOWN else f"{shown} and {len(calls) - _SHOWN:,} more"
