"""The output of the workers, on the terminal of the script that launched them.

    logs/learner-0.log ──┐
    logs/actor-0.log   ──┼── tails, looked at every 50 ms ──▶ learner-0 | step 1
    progress, notes    ──┘                                    actor-0   | 17 episodes
                                                              launchpad | 1 of 2 workers is ready …

Everything is in the log files, whatever backend writes them, and this module only shows it. So nothing is
lost if the terminal is slow or closed, and a worker never waits for the terminal. If the output falls so far
behind that no user could read the rest, lines are skipped, and a note is printed. Control characters in a
line are shown, not sent to the terminal.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TextIO

from launchpad.courier import formatting
from launchpad.courier.own_threads import OwnThread
from launchpad.launch.logs.tail import Tail

if TYPE_CHECKING:
    from launchpad.launch.rundir.directory import RunDirectory

_INTERVAL_S = 0.05
_PROGRESS_S = 0.5
_OURS = "launchpad"
_WRITTEN_AT_ONCE = 1 << 16

_BEHIND_OF_TERMINAL = 8 << 20
_BEHIND_OF_FILE = 256 << 20
"""The most bytes of all workers together that may wait to be shown. For a file or pipe, which no user reads
live, the limit is higher."""

_LEAST_BEHIND = 1 << 18
_KEPT_OF_SKIPPED = 1 << 14
_AT_THE_END = 4
"""The divisor of these limits at the end, when the user waits for the prompt."""

_COLORS = "cyan green yellow magenta blue bright_red bright_cyan bright_green".split()


class Overlay(Protocol):
    """Something that is shown on the terminal in addition to the workers' lines."""

    def draw(self) -> None: ...

    def close(self) -> None: ...


class Output:
    """A printer of the workers' lines, each with its worker's name in front.

    Example:
        output = Output(run, ["learner-0", "actor-0"], sys.stdout)
        output.open()
        output.note("learner-0 failed")
        output.close()

    Args:
        run: The directories with the logs.
        stream: Where to print; with None, nowhere. Printing ends when the stream takes no more text.
        overlay: Drawn after each round, and closed at the end.

    Attributes:
        progress: Called with the time twice a second. The lines that it returns are printed too.
    """

    def __init__(
        self,
        run: RunDirectory,
        workers: Sequence[str],
        stream: TextIO | None,
        overlay: Overlay | None = None,
    ) -> None:
        self._run = run
        self._overlay = overlay
        self._tails = {worker: Tail(run.log(worker)) for worker in workers}
        self._stream = stream
        self._notes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._noted: set[str] = set()
        self.progress: Callable[[float], Iterable[str]] = lambda now: ()
        self._progress_at = 0.0
        self._wake = threading.Event()
        self._is_closing = False
        self._is_behind = False
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Start to print, in a separate thread."""
        if self._stream is not None:
            self._thread = OwnThread(
                target=self._print_all, args=(self._stream,), name="launchpad-output"
            )
            self._thread.start()

    def follow(self, worker: str, attempt: int) -> None:
        """Print the lines of another attempt of a worker, after the lines of the attempt before."""
        if worker in self._tails:
            self._tails[worker].follow(self._run.log(worker, attempt))

    def note(self, text: str, *, once: bool = False) -> None:
        """Print lines of the launcher's own, after what the workers have printed so far.

        Args:
            once: If True, do nothing if an earlier call with `once` has printed the same text.
        """
        if once and text in self._noted:
            return
        if once:
            self._noted.add(text)
        self._notes.put(text)
        self._wake.set()

    def close(self) -> None:
        """Print what is left, including partial lines, and nothing after that. May be called again."""
        self._is_closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        if self._overlay is not None:
            self._overlay.close()

    def _print_all(self, stream: TextIO) -> None:
        prefixes = prefixes_of(stream, list(self._tails), _OURS)
        most = _BEHIND_OF_TERMINAL if is_terminal(stream) else _BEHIND_OF_FILE
        while True:
            limit = (most // _AT_THE_END if self._is_closing else most) // max(len(self._tails), 1)
            if not self._written(stream, self._round(prefixes, max(limit, _LEAST_BEHIND))):
                return
            if self._overlay is not None:
                self._overlay.draw()
            if not self._is_closing:
                if not self._is_behind:
                    self._wake.wait(_INTERVAL_S)
                    self._wake.clear()
            elif self._notes.empty() and not any(tail.has_more() for tail in self._tails.values()):
                remainders = [(worker, tail.remainder()) for worker, tail in self._tails.items()]
                lines = (prefixed(prefixes[worker], [line]) for worker, line in remainders if line)
                self._written(stream, lines)
                return

    def _written(self, stream: TextIO, texts: Iterable[str]) -> bool:
        """Write a few texts at a time. Return True if the stream still takes text."""
        batch = []
        length = 0
        for text in texts:
            batch.append(text)
            length += len(text)
            if length > _WRITTEN_AT_ONCE:
                if not _write(stream, "".join(batch)):
                    return False
                batch = []
                length = 0
        return _write(stream, "".join(batch))

    def _round(self, prefixes: dict[str, str], limit: int) -> Iterator[str]:
        """Yield what is new, as lines, with the notes last.

        If more than `limit` bytes of a worker wait, all but the last of them are skipped.
        """
        notes: list[str] = []
        while not self._notes.empty():
            notes.append(self._notes.get())
        self._is_behind = False
        for worker, tail in self._tails.items():
            backlog = tail.backlog()
            if backlog > limit:
                n_lines, n_bytes = tail.skip(_KEPT_OF_SKIPPED)
                yield (
                    f"{prefixes[_OURS]}{n_lines:,} lines of {worker} ({formatting.size(n_bytes)}) are not"
                    f" shown, there are too many; they are in {self._run.log(worker).parent}\n"
                )
            lines = tail.lines() if backlog else []
            if lines:
                yield prefixed(prefixes[worker], lines)
                self._is_behind |= tail.has_more()
        now = time.monotonic()
        if now >= self._progress_at and not self._is_closing:
            self._progress_at = now + _PROGRESS_S
            notes += self.progress(now)
        for text in notes:
            for line in text.splitlines():
                yield f"{prefixes[_OURS]}{formatting.coloured(line)}\n"


def prefixes_of(stream: TextIO, workers: Sequence[str], ours: str = "") -> dict[str, str]:
    """Return name → the prefix of its lines, in a colour if the stream is a terminal that shows colours.

    Args:
        ours: The name in front of launchpad's own lines.
    """
    styles = {worker: _COLORS[i % len(_COLORS)] for i, worker in enumerate(workers)}
    if ours:
        styles[ours] = "bold"
    width = max(map(len, styles))
    prefixes = {name: f"{name.ljust(width)} | " for name in styles}
    if not is_terminal(stream):
        return prefixes
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream)  # it reads TERM, NO_COLOR and the like
    for name, style in styles.items():
        with console.capture() as capture:
            console.print(Text(prefixes[name], style), end="", soft_wrap=True)
        prefixes[name] = capture.get()
    return prefixes


def is_terminal(stream: TextIO) -> bool:
    """Return True if the stream is a terminal."""
    try:
        return stream.isatty()
    except (AttributeError, ValueError, OSError):
        return False


def _write(stream: TextIO, text: str) -> bool:
    """Write a text. Return True if the stream still takes text."""
    try:
        if text:
            # Characters that the stream's encoding does not have become question marks.
            encoding = getattr(stream, "encoding", None) or "utf-8"
            stream.write(text.encode(encoding, "replace").decode(encoding))
            stream.flush()
    except BlockingIOError:
        # Some program has made the terminal non-blocking. Text is missing there, but the log has it.
        return True
    except (OSError, ValueError):
        return False
    return True


def prefixed(prefix: str, lines: Sequence[bytes]) -> str:
    """Return lines of a log as they are shown, each with the prefix in front."""
    text = b"\n".join(lines).decode(errors="replace")
    if formatting.UNSAFE.search(text) is None:  # nearly always, and ten times as fast
        return f"{prefix}{text}\n".replace("\n", f"\n{prefix}", len(lines) - 1)
    # A progress bar overwrites its line many times. Only its last state is shown.
    last = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return "".join(f"{prefix}{formatting.coloured(line)}\n" for line in last)
