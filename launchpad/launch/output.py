"""Output: what the workers print, on the terminal of the script that launched them.

    logs/learner-0.log ──┐
    logs/actor-0.log   ──┼── tails, looked at every 50 ms ──▶ learner-0 | step 1
    note("…")          ──┘                                    actor-0   | 17 episodes

The log files are the truth, whatever backend writes them; this only shows them. So nothing is lost when
the terminal is slow or goes away, and a worker never waits for it.
"""

from __future__ import annotations

import os
import queue
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from launchpad.launch.run_directory import RunDirectory

_INTERVAL_S = 0.05
_CHUNK = 1 << 18
_LONGEST_LINE = 1 << 20
_OURS = "launchpad"
_COLORS = (
    "cyan",
    "green",
    "yellow",
    "magenta",
    "blue",
    "bright_red",
    "bright_cyan",
    "bright_green",
)

_UNSAFE = re.compile("\x1b\\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Colours, which may pass; and control characters, which could move the cursor or worse."""

Style = Callable[[str, str], str]
"""(text, the name of a style) → the text as it goes to the stream."""


class Output:
    """Prints the workers' lines, each with its worker's name in front.

    Example:
      output = Output(run, ["learner-0", "actor-0"], sys.stdout)
      output.start()
      output.note("learner-0 failed")
      output.close()

    Args:
      run: Where the logs are, or will be.
      workers: Whose.
      stream: Where to print; nowhere if None. When it cannot be written to any more, printing ends.
    """

    def __init__(self, run: RunDirectory, workers: Sequence[str], stream: TextIO | None) -> None:
        self._tails = {worker: Tail(str(run.log(worker))) for worker in workers}
        self._width = max(map(len, (*workers, _OURS)))
        self._stream = stream
        self._notes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts to print, in a thread of its own."""
        if self._stream is not None:
            self._thread = threading.Thread(
                target=self._print_all, args=(self._stream,), name="launchpad-output", daemon=True
            )
            self._thread.start()

    def note(self, text: str) -> None:
        """Prints lines of the launcher's own, after what the workers have printed so far."""
        self._notes.put(text)
        self._wake.set()

    def close(self) -> None:
        """Prints what is left, partial lines too. Nothing is printed afterwards; may be called again."""
        self._is_closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _print_all(self, stream: TextIO) -> None:
        prefixes = self._prefixes(_style_for(stream))
        while _write(stream, self._round(prefixes)):
            if self._is_closing and self._is_all_read():
                _write(stream, self._remains(prefixes))
                return
            if not self._is_closing:
                self._wake.wait(_INTERVAL_S)
                self._wake.clear()

    def _round(self, prefixes: dict[str, str]) -> Iterator[str]:
        """What is new, as lines. A note comes after what was printed before it."""
        notes = list(_taken(self._notes))
        for worker, tail in self._tails.items():
            for line in tail.lines():
                yield prefixes[worker] + _shown(line)
        for note in notes:
            for text in note.splitlines():
                yield prefixes[_OURS] + _safe(text)

    def _remains(self, prefixes: dict[str, str]) -> Iterator[str]:
        for worker, tail in self._tails.items():
            line = tail.remainder()
            if line:
                yield prefixes[worker] + _shown(line)

    def _is_all_read(self) -> bool:
        return self._notes.empty() and not any(tail.has_more() for tail in self._tails.values())

    def _prefixes(self, style: Style) -> dict[str, str]:
        colored = [(worker, _COLORS[i % len(_COLORS)]) for i, worker in enumerate(self._tails)]
        return {
            name: style(f"{name.ljust(self._width)} | ", color)
            for name, color in [(_OURS, "bold"), *colored]
        }


class Tail:
    """The lines that are added to a file, which need not exist yet."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0
        self._partial = b""

    def has_more(self) -> bool:
        """Whether the file has grown since `lines` looked; one that shrank is read from its start again."""
        try:
            size = os.stat(self._path).st_size
        except OSError:
            return False
        if size < self._offset:
            self._offset = 0
        return size > self._offset

    def lines(self) -> list[bytes]:
        """The next complete lines; not all of them if there are very many."""
        if not self.has_more():
            return []
        *lines, partial = (self._partial + self._read()).split(b"\n")
        if len(partial) > _LONGEST_LINE:
            lines, partial = [*lines, partial], b""
        self._partial = partial
        return lines

    def remainder(self) -> bytes:
        """The last line, if nothing has ended it."""
        partial, self._partial = self._partial, b""
        return partial

    def _read(self) -> bytes:
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset)
                data = file.read(_CHUNK)
        except OSError:
            return b""
        self._offset += len(data)
        return data


def _style_for(stream: TextIO) -> Style:
    """Colours if the stream is a terminal that shows them."""
    if not _is_terminal(stream):
        return lambda text, style: text
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream)  # knows TERM, NO_COLOR and the like

    def styled(text: str, style: str) -> str:
        with console.capture() as capture:
            console.print(Text(text, style), end="", soft_wrap=True)
        return capture.get()

    return styled


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError, OSError):
        return False


def _write(stream: TextIO, lines: Iterable[str]) -> bool:
    """Whether the stream still takes text."""
    text = "".join(f"{line}\n" for line in lines)
    try:
        if text:
            stream.write(_encodable(text, stream))
            stream.flush()
    except BlockingIOError:
        return True  # somebody made the terminal non-blocking: some text is missing there, the log has it
    except (OSError, ValueError):
        return False
    return True


def _encodable(text: str, stream: TextIO) -> str:
    """The text with what the stream's encoding has not replaced by question marks."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def _shown(line: bytes) -> str:
    """A line as it looks at the end: a progress bar has overwritten itself many times."""
    *_, last = line.rstrip(b"\r").rpartition(b"\r")
    return _safe(last.decode(errors="replace"))


def _safe(text: str) -> str:
    """The text with all control characters but colours spelled out, and without a colour left on."""
    safe = _UNSAFE.sub(_spelled, text)
    return f"{safe}\x1b[0m" if "\x1b" in safe else safe


def _spelled(found: re.Match[str]) -> str:
    match = found.group()
    return match if len(match) > 1 else match.encode("unicode_escape").decode()


def _taken(notes: queue.SimpleQueue[str]) -> Iterator[str]:
    while not notes.empty():
        yield notes.get()
