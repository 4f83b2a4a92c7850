"""Jobs of a connection whose calls overlap: the turn, and a call that runs without it."""

from __future__ import annotations

from typing import Protocol

from launchpad.courier.protocol import wire
from launchpad.courier.watching.counts import MethodCounts


class Runner(Protocol):
    """The connection."""

    def serve(self, turn: Turn) -> None: ...

    def run_apart(self, call: Apart) -> None: ...


class Turn:
    """The right to read, and to run what has been read. The newest one has it.

    The thread that has the turn writes down what it runs, without a lock; another one looks at it.
    """

    is_urgent = False
    caller = ""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.is_waiting = False
        self.is_relieved = False  # it has one answer to deliver, and the turn no more
        self.runs: MethodCounts | None = None  # calls of this method, since:
        self.since = 0.0  # or 0, when none runs
        self._seen_since = 0.0

    def run(self) -> None:
        self._runner.serve(self)

    def seems_stuck(self) -> bool:
        """At the last look it ran this very call already; one look alone may meet it anywhere."""
        seen, self._seen_since = self._seen_since, self.since
        return bool(seen) and seen == self.since


class Apart:
    """A call of a method that takes long."""

    is_waiting = False
    caller = ""

    def __init__(self, runner: Runner, frame: wire.Fields, read_at: float, is_urgent: bool) -> None:
        self._runner = runner
        self.frame = frame
        self.read_at = read_at
        self.is_urgent = is_urgent

    def run(self) -> None:
        self._runner.run_apart(self)
