"""Messages between the launcher and a node, in parts, so that renewals of a lease overtake large messages.

    put ──▶ SendQueue ── parts ──▶ a stream, calls or pipes ── parts ──▶ PartJoiner ──▶ message

A node that is sent a large payload, or sends what a worker has returned, may be busy with it for longer than
its lease runs. So no message has the line for itself: each goes in parts, and before each part an urgent
message may go. Other messages keep their order.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pickle
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

PART_BYTES = 1 << 20
"""The most bytes that one part carries."""

_REMEMBERED = 64
"""The number of complete messages whose repeated parts are recognized. A repeat comes soon after its part."""


@dataclass(frozen=True)
class Part:
    """A part of a pickled message. The parts of a message are sent in order.

    Attributes:
        number: The number of the message.
        sizes: The size of the message's pickle, and those of the buffers to which the pickle refers.
        offset: The position of the content, if the pickle and its buffers follow each other.
    """

    number: int
    sizes: tuple[int, ...]
    offset: int
    content: bytes


def cut(number: int, message: Any) -> Iterator[Part]:
    """Pickle a message, and yield its parts. Large buffers are not copied as a whole."""
    buffers: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
    pieces = [memoryview(stream)]
    pieces += [buffer.raw() for buffer in buffers]
    sizes = tuple(piece.nbytes for piece in pieces)
    offset = 0
    for piece in pieces:
        for start in range(0, piece.nbytes, PART_BYTES):
            content = bytes(piece[start : start + PART_BYTES])
            yield Part(number, sizes, offset, content)
            offset += len(content)


class PartJoiner:
    """The messages of which some parts have arrived. Thread-safe. A part that comes twice does no harm."""

    def __init__(self) -> None:
        self._incoming: dict[int, bytearray] = {}
        # The last ones are not all higher than the numbers before, because urgent messages overtake others.
        self._complete: deque[int] = deque(maxlen=_REMEMBERED)
        # Held while a part is added, because a part that was sent twice may arrive in two threads.
        self._lock = threading.Lock()

    def add(self, part: Part) -> Any:
        """Return the message if this is its last part; else None."""
        with self._lock:
            if part.number in self._complete:
                return None
            if part.offset == 0:
                self._incoming.setdefault(part.number, bytearray())
            content = self._incoming.get(part.number)
            if content is None or len(content) != part.offset:
                return None
            content += part.content
            if len(content) < sum(part.sizes):
                return None
            del self._incoming[part.number]
            self._complete.append(part.number)
        rest = memoryview(content)
        pieces = []
        for size in part.sizes:
            pieces.append(rest[:size])
            rest = rest[size:]
        return pickle.loads(pieces[0], buffers=pieces[1:])


class SendQueue:
    """Messages that wait to be sent. Make it in the event loop that sends; use it from any thread.

    Args:
        on_unsendable: Called in the event loop with a message that can't be pickled, and the error.
    """

    def __init__(self, on_unsendable: Callable[[Any, Exception], object]) -> None:
        self._on_unsendable = on_unsendable
        self._loop = asyncio.get_running_loop()
        # These belong to the event loop.
        self._urgent: deque[Any] = deque()
        self._waiting: deque[Any] = deque()
        self._has_more = asyncio.Event()
        self._numbers = itertools.count()

    def put(self, message: Any, *, is_urgent: bool = False) -> None:
        """Queue a message. An urgent one overtakes all others, even one of which parts were sent."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, since the launch is over
            queue = self._urgent if is_urgent else self._waiting
            self._loop.call_soon_threadsafe(self._add, queue, message)

    def end(self) -> None:
        """End `parts` after the messages that were put before."""
        self.put(None)

    async def parts(self) -> AsyncIterator[Part]:
        """Yield what to send, until `end`."""
        current: Iterator[Part] = iter(())
        while True:
            await self._has_more.wait()
            while self._urgent:
                for urgent in self._cut(self._urgent.popleft()):
                    yield urgent
            part = next(current, None)
            if part is not None:
                yield part
            elif not self._waiting:
                self._has_more.clear()
            else:
                message = self._waiting.popleft()
                if message is None:
                    return
                # It is pickled when its turn comes, so that the buffers of all waiting messages need not be
                # mapped at once.
                current = self._cut(message)

    def _add(self, queue: deque[Any], message: Any) -> None:
        queue.append(message)
        self._has_more.set()

    def _cut(self, message: Any) -> Iterator[Part]:
        try:
            yield from cut(next(self._numbers), message)
        except Exception as error:
            self._on_unsendable(message, error)
