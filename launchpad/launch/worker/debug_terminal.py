"""The terminal of `launchpad attach`, as a worker sees it: at the other end of a socket.

worker ── token, then + or -, and why it refuses ──▶ terminal
       ── text to show ───────────────────────────▶           A NUL in it: the worker awaits a line, and
       ◀── lines ──────────────────────────────────           the last line of the text is the prompt.
                                                              ^C among the lines: Ctrl-C.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Callable

ACCEPTED = b"+"
REFUSED = b"-"
AWAITS_LINE = b"\0"
CTRL_C = b"\3"


class DebugTerminal:
    """The terminal, as the streams that pdb reads and writes.

    Attributes:
        is_closed: True if the terminal is gone, or the user has left. Then it shows nothing more and sends no
            more lines.
        is_reading: True while the worker awaits a line.
    """

    encoding = "utf-8"

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        # Held while a text is sent, so that another thread's text is not in the middle of it. Reentrant,
        # because a signal handler may interrupt a thread that writes, and write too.
        self._sending = threading.RLock()
        self.is_closed = False
        self.is_reading = False

    def listen(self, on_interrupt: Callable[[], None]) -> None:
        """Receive what the user types, until the terminal is closed."""
        unfinished = b""
        for data in iter(self._received, b""):
            *lines, unfinished = (unfinished + data.replace(CTRL_C, b"")).split(b"\n")
            for line in lines:
                self._lines.put(line.decode(errors="replace") + "\n")
            if CTRL_C in data:
                on_interrupt()
        self.close()

    def readline(self) -> str:
        """Wait for the next line, and return it; empty if no more lines will come."""
        self.is_reading = True
        try:
            self._send(AWAITS_LINE)
            line = self._lines.get()
        finally:
            self.is_reading = False
        if not line:
            self._lines.put("")
        return line

    def write(self, text: str) -> int:
        self._send(text.replace("\0", "\\0").encode(errors="replace"))
        return len(text)

    def flush(self) -> None:
        """Do nothing: `write` sends everything at once."""

    def isatty(self) -> bool:
        return False

    def close(self, last: str = "") -> None:
        """Close the terminal, even while another thread writes. Show `last` if there is room."""
        # Send the message first, because a reader that finds the terminal closed shuts the connection down.
        if last:
            with contextlib.suppress(OSError):
                self._connection.send(last.encode(), socket.MSG_DONTWAIT)
        self.is_closed = True
        self._lines.put("")
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _received(self) -> bytes:
        try:
            return self._connection.recv(1 << 16)
        except OSError:
            return b""

    def _send(self, data: bytes) -> None:
        with self._sending, contextlib.suppress(OSError):
            self._connection.sendall(data)
