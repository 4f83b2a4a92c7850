"""The server's side of calls that share a frame (protocol/joined.py): the calls, and their results."""

from __future__ import annotations

import contextlib
import pickle
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from launchpad.courier.protocol import framing, joined

if TYPE_CHECKING:
    from launchpad.courier.transport.write_queue import TrackedFrame


class JoinedCalls:
    """The calls of one frame that have not begun yet."""

    def __init__(self, frame: framing.Fields, cancelled: Collection[int]) -> None:
        self.method = frame[2]
        #: The fields that each of the calls would have in a frame of its own, without id and arguments.
        self.frame: framing.Fields = (framing.CALL, 0, self.method, b"", (), 0, b"")
        self.size = len(frame[3])
        self.share = self.size // max(1, frame[1])  # the part of the size that counts for each call
        calls = zip(*joined.decode(frame), strict=True)
        self._left = deque([call for call in calls if call[0] not in cancelled])

    def take_all(self) -> Iterator[tuple[int, Any]]:
        """Yield the id and the arguments of one call after the other. Several threads may iterate at once."""
        with contextlib.suppress(IndexError):
            while True:
                yield self._left.popleft()

    def alone(self, call_id: int, args: Any) -> framing.Fields:
        """Return the frame that this call would have on its own."""
        body = pickle.dumps((args, {}), 5)
        return framing.CALL, call_id, self.method, body, (), 0, b""


def join(waiting: Sequence[Any], at: int) -> tuple[bytes, Sequence[TrackedFrame], int]:
    """Join consecutive results of one method into a frame. This is a `write_queue.Join`."""
    call_id, value, counts = waiting[at]
    ids: list[int] = []
    values: list[Any] = []
    for result in waiting[at : at + joined.MOST]:
        if type(result) is not tuple or result[2] is not counts:
            break
        ids.append(result[0])
        values.append(result[1])
    at += len(ids)
    if len(ids) == 1:
        body = pickle.dumps(value, 5)
        n = len(body)
        counts.bytes_out += n
        return framing.encode_small(framing.RESULT, call_id, b"", body), (), at
    frame = joined.encode(framing.RESULTS, b"", ids, values)
    n = len(frame) - framing.HEADER.size
    counts.bytes_out += n
    return frame, (), at
