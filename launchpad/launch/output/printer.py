"""What the workers print, on the terminal of the script that launched them.

    logs/learner-0.log ──┐
    logs/actor-0.log   ──┼── tails, looked at every 50 ms ──▶ learner-0 | step 1
    progress, notes    ──┘                                    actor-0   | 17 episodes
                                                              launchpad | 1 of 2 workers is ready …

Everything is in the log files, whatever backend writes them; this only shows them. So nothing is lost when
the terminal is slow or is closed, and a worker never waits for it. Where it falls so far behind that
no user could read what it has to catch up with, lines are skipped, and a note is printed.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from launchpad.launch.logs.tail import Tail
from launchpad.launch.output import terminal

if TYPE_CHECKING:
    from launchpad.launch.rundir.directory import RunDirectory

_INTERVAL_S = 0.05
_PROGRESS_S = 0.5
_OURS = "launchpad"
_WRITTEN_AT_ONCE = 1 << 16

_BEHIND_OF_TERMINAL, _BEHIND_OF_FILE = 8 << 20, 256 << 20
"""How many bytes of all workers may wait to be shown; from a file or pipe they are not read as they come."""

_LEAST_BEHIND = 1 << 18
_KEPT_OF_SKIPPED = 1 << 14
_AT_THE_END = 4
"""At the end it is so many times less, since the user waits for the prompt."""


class Output:
    """Prints the workers' lines, each with its worker's name in front.

    Example:
        output = Output(run, ["learner-0", "actor-0"], sys.stdout)
        output.open()
        output.note("learner-0 failed")
        output.close()

    Args:
        run: Where the logs are, or will be.
        workers: The names of the workers.
        stream: Where to print; nowhere if None. When it cannot be written to any more, printing ends.

    Attributes:
        progress: Called with the time twice a second; the lines that it returns are printed, too.
    """

    def __init__(self, run: RunDirectory, workers: Sequence[str], stream: TextIO | None) -> None:
        self._run = run
        self._tails = {worker: Tail(run.log(worker)) for worker in workers}
        self._stream = stream
        self._notes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._noted: set[str] = set()
        self.progress: Callable[[float], Iterable[str]] = lambda now: ()
        self._progress_at = 0.0
        self._wake = threading.Event()
        self._is_closing = self._is_behind = False
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Starts to print, in a thread of its own."""
        if self._stream is not None:
            self._thread = threading.Thread(
                target=self._print_all, args=(self._stream,), name="launchpad-output", daemon=True
            )
            self._thread.start()

    def follow(self, worker: str, attempt: int) -> None:
        """Prints the lines of another attempt of a worker, after those of the one before."""
        if worker in self._tails:
            self._tails[worker].follow(self._run.log(worker, attempt))

    def note(self, text: str, *, once: bool = False) -> None:
        """Prints lines of the launcher's own, after what the workers have printed so far.

        Args:
            once: Not if the same were printed before, by such a call.
        """
        if once and text in self._noted:
            return
        if once:
            self._noted.add(text)
        self._notes.put(text)
        self._wake.set()

    def close(self) -> None:
        """Prints what is left, partial lines too. Nothing is printed afterwards; may be called again."""
        self._is_closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _print_all(self, stream: TextIO) -> None:
        prefixes = terminal.prefixes(stream, list(self._tails), _OURS)
        most = _BEHIND_OF_TERMINAL if terminal.is_terminal(stream) else _BEHIND_OF_FILE
        while True:
            limit = (most // _AT_THE_END if self._is_closing else most) // max(len(self._tails), 1)
            if not self._written(stream, self._round(prefixes, max(limit, _LEAST_BEHIND))):
                return
            if not self._is_closing:
                if not self._is_behind:
                    self._wake.wait(_INTERVAL_S)
                    self._wake.clear()
            elif self._notes.empty() and not any(tail.has_more() for tail in self._tails.values()):
                left = [(worker, tail.remainder()) for worker, tail in self._tails.items()]
                lines = (
                    terminal.prefixed(prefixes[worker], [line]) for worker, line in left if line
                )
                self._written(stream, lines)
                return

    def _written(self, stream: TextIO, texts: Iterable[str]) -> bool:
        """Writes a few at a time; whether the stream still takes text."""
        some, length = [], 0
        for text in texts:
            some.append(text)
            length += len(text)
            if length > _WRITTEN_AT_ONCE:
                if not terminal.write(stream, "".join(some)):
                    return False
                some, length = [], 0
        return terminal.write(stream, "".join(some))

    def _round(self, prefixes: dict[str, str], limit: int) -> Iterator[str]:
        """What is new, as lines; more than `limit` bytes of a worker are skipped. Notes come last."""
        notes: list[str] = []
        while not self._notes.empty():
            notes.append(self._notes.get())
        self._is_behind = False
        for worker, tail in self._tails.items():
            left = tail.backlog()
            if left > limit:
                n_lines, n_bytes = tail.skip(_KEPT_OF_SKIPPED)
                yield (
                    f"{prefixes[_OURS]}{n_lines:,} lines of {worker} ({n_bytes / 1e6:,.1f} MB) are not shown,"
                    f" there are too many; they are in {self._run.log(worker).parent}\n"
                )
            if left and (lines := tail.lines()):
                yield terminal.prefixed(prefixes[worker], lines)
                self._is_behind |= tail.has_more()
        now = time.monotonic()
        if now >= self._progress_at and not self._is_closing:
            self._progress_at = now + _PROGRESS_S
            notes += self.progress(now)
        for text in notes:
            for line in text.splitlines():
                yield f"{prefixes[_OURS]}{terminal.safe(line)}\n"
