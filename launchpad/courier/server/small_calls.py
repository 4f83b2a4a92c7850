"""The server's side of calls that share a frame (protocol/joined.py): what has come, and its results."""

from __future__ import annotations

import contextlib
import pickle
from collections import deque
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from launchpad.courier.protocol import framing, joined

if TYPE_CHECKING:
    from launchpad.courier.transport.write_queue import TrackedFrame


class SmallCalls:
    """The calls that have come in one frame, and have not been begun."""

    def __init__(self, frame: framing.Fields, cancelled: Collection[int]) -> None:
        self.method = frame[2]
        self.size = len(frame[3])
        self.share = self.size // max(1, frame[1])  # of each call
        calls = zip(*joined.decode(frame), strict=True)
        self.left = deque([call for call in calls if call[0] not in cancelled])

    def split(self) -> list[framing.Fields]:
        """Those that are left, each as a frame of its own."""
        found: list[framing.Fields] = []
        with contextlib.suppress(IndexError):
            while True:
                call_id, args = self.left.popleft()
                body = pickle.dumps((args, {}), 5)
                found.append((framing.CALL, call_id, self.method, body, (), 0, b""))
        return found


def join(waiting: Sequence[Any], at: int) -> tuple[bytes, Sequence[TrackedFrame], int]:
    """As `write_queue.Join`: results of one method."""
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
