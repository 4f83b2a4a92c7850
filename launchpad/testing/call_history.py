"""History: the results of calls at the callers, and which calls ran, compared afterwards.

A file of lines, appended to by any number of threads and processes, also by those that are killed:

    ["begun", id, time]                   the caller is about to call
    ["acknowledged", id, time, outcome]   the call has returned, `ok`, or raised, the exception's type
    ["ran", id, time]                     the server has run it
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OK = "ok"
_SHOWN = 5

CallId = int | str


@dataclass(frozen=True)
class Findings:
    """What a history shows. Each list is of calls, by their ids.

    Example:
        found = history.read()
        assert not found.lost and not found.repeated

    Attributes:
        acknowledged: How often each result was seen by callers: `ok`, `OutcomeUnknown`, …
        lost: `ok`, but never run.
        repeated: Run more than once.
        run_all_the_same: `NotSent`, but run.
        unanswered: Begun, without a result.
    """

    acknowledged: Counter[str] = field(default_factory=Counter)
    lost: list[CallId] = field(default_factory=list)
    repeated: list[CallId] = field(default_factory=list)
    run_all_the_same: list[CallId] = field(default_factory=list)
    unanswered: list[CallId] = field(default_factory=list)


@dataclass(frozen=True)
class History:
    """Records calls, to check that none was lost or ran twice, whatever happened to clients and servers.

    Example:
        history = lp.testing.History(tmp_path / "history")  # an argument of the nodes that call and serve

        class Account:
          def deposit(self, number, amount):                # in the server
            self.history.ran(number)
            self.balance += amount

        with contextlib.suppress(lp.courier.OutcomeUnknown), history.call(number):   # in a client
          account.deposit(number, 10)

        history.check()                                     # at the end

    Every call has an id of its own; a call that is made again has another one, if it must not run twice.
    Safe in any thread and process; what was written before a kill is kept.

    Args:
        path: The file; it need not exist.
    """

    path: Path | str

    def ran(self, call: CallId) -> None:
        """The server runs this call. To be called in the method, before it returns."""
        self._write("ran", call)

    @contextlib.contextmanager
    def call(self, call: CallId) -> Iterator[None]:
        """The block makes this call, and waits for its answer. What it raises is raised."""
        self._write("begun", call)
        try:
            yield
        except Exception as error:
            self._write("acknowledged", call, type(error).__name__)
            raise
        self._write("acknowledged", call, OK)

    def follow(self, call: CallId, future: Future[Any]) -> None:
        """The same for a future. One that is cancelled counts as `CancelledError`."""
        self._write("begun", call)

        def write(done: Future[Any]) -> None:
            error = CancelledError() if done.cancelled() else done.exception()
            self._write("acknowledged", call, OK if error is None else type(error).__name__)

        future.add_done_callback(write)

    def read(self) -> Findings:
        """What the file shows."""
        begun: dict[CallId, None] = {}
        results: dict[CallId, str] = {}
        ran: Counter[CallId] = Counter()
        lines = Path(self.path).read_text().splitlines() if Path(self.path).exists() else []
        for event, call, _, *outcome in map(json.loads, lines):
            if event == "ran":
                ran[call] += 1
            elif event == "begun":
                begun[call] = None
            else:
                results[call] = outcome[0]
        return Findings(
            acknowledged=Counter(results.values()),
            lost=[call for call, what in results.items() if what == OK and not ran[call]],
            repeated=[call for call, times in ran.items() if times > 1],
            run_all_the_same=[c for c, what in results.items() if what == "NotSent" and ran[c]],
            unanswered=[call for call in begun if call not in results],
        )

    def check(self, *, may_repeat: bool = False, may_be_unanswered: bool = False) -> Findings:
        """What the file shows, if nothing is wrong with it.

        Args:
            may_repeat: The methods are idempotent, so a call may run more than once.
            may_be_unanswered: Clients were killed too, and could not write down the results.

        Raises:
            AssertionError: A call was lost, ran twice, ran although it was not sent, or was never answered.
        """
        found = self.read()
        wrong = {
            "acknowledged, and never run": found.lost,
            "run more than once": [] if may_repeat else found.repeated,
            "NotSent, and run all the same": found.run_all_the_same,
            "never answered": [] if may_be_unanswered else found.unanswered,
        }
        parts = []
        for what, calls in wrong.items():
            shown = ", ".join(map(str, calls[:_SHOWN]))
            more = f" and {len(calls) - _SHOWN:,} more" if len(calls) > _SHOWN else ""
            parts += [f"{what}: {shown}{more}"] if calls else []
        assert not parts, f"{'; '.join(parts)} (of {found.acknowledged.total():,} calls)"
        return found

    def _write(self, event: str, call: CallId, *more: str) -> None:
        line = json.dumps([event, call, time.monotonic(), *more]) + "\n"
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, line.encode())
        finally:
            os.close(fd)
