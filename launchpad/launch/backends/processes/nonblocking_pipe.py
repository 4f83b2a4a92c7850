"""The host's end of a connection: neither reading nor writing ever makes the host wait."""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from typing import Any

from launchpad.launch.backends.processes.messages import MessageDecoder, encode, read


class NonblockingPipe:
    """A connection in the host's selector. What the kernel does not take now goes out when it can.

    Args:
        fd: Ours from now on.
        selector: Whose entries carry a function of the events.
        on_message: Takes the body of each frame that arrives.
    """

    def __init__(
        self, fd: int, selector: selectors.BaseSelector, on_message: Callable[[bytes], None]
    ) -> None:
        os.set_blocking(fd, False)
        self._fd, self._selector, self._on_message = fd, selector, on_message
        self._decoder = MessageDecoder()
        self._unsent = bytearray()
        self.is_open = True
        selector.register(fd, selectors.EVENT_READ, self._serve)

    def send(self, message: Any) -> None:
        """Sends, or keeps for later."""
        if self.is_open:
            self._unsent += encode(message)
            self._flush()

    def drain(self) -> None:
        """Takes all that has arrived."""
        try:
            while self.is_open:
                data = read(self._fd)
                for body in self._decoder.feed(data):
                    self._on_message(body)
                if not data:
                    self._shut()
        except BlockingIOError:
            return

    def finish(self) -> None:
        """Sends what is kept, however long it takes, unless nobody is there to read it."""
        if self.is_open:
            os.set_blocking(self._fd, True)
            self._flush()

    def close(self) -> None:
        """Gives the descriptor back."""
        self._shut()
        os.close(self._fd)

    def _serve(self, events: int) -> None:
        if events & selectors.EVENT_WRITE and self.is_open:
            self._flush()
        if events & selectors.EVENT_READ:
            self.drain()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._fd, self._unsent)]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()  # nobody is there to read it
        self._selector.modify(self._fd, self._interest(), self._serve)

    def _interest(self) -> int:
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)

    def _shut(self) -> None:
        if self.is_open:
            self.is_open = False
            self._selector.unregister(self._fd)
