"""ItemSender: the sender of a writer's items. It sends many in one message if they come quickly.

    add ──▶ waiting ──at most one message at a time──▶ under way ──answered──▶ acknowledged
               ▲                                           │
               └──────────── the message was lost ─────────┘

An item is sent at once, unless a message is under way. In this case it waits for the answer to that message,
and is then sent together with all items that wait by then. So the items of a slow writer arrive soon, and the
items of a quick writer cost little. If too many items wait, the writer waits, too.

If a table refuses an item, the sender drops it and sends the other items again, so that the writer can
continue. The writer raises the error through `raise_refusal` at the end of its call.

Normally the writer's thread sends. While a message is under way, a second thread, the watcher, checks every
10 ms if the message was answered, and sends the next one if the writer's thread doesn't. The watcher never
waits, and errors of items are raised only in the writer's thread.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from launchpad.courier import fork
from launchpad.courier.deadlines import deadline_after
from launchpad.courier.errors import OutcomeUnknown
from launchpad.courier.interruptions import Lock, is_interruption
from launchpad.courier.periodic_checks import PeriodicChecks
from launchpad.replay.errors import ItemsRefused, ServerStopping, UnknownSteps
from launchpad.replay.step_chunks import StepChunks
from launchpad.runtime import context
from launchpad.services.requests import ClientSession

if TYPE_CHECKING:
    from concurrent.futures import Future

_MOST_WAITING = 8
_MOST_BYTES = 4 << 20
_LOOK_S = 0.01
_LOST = (OutcomeUnknown, ServerStopping, UnknownSteps)
"""Errors after which a message can simply be sent again."""

_watcher = PeriodicChecks("replay-writers", _LOOK_S)

Inserts = tuple[str, int, Sequence[Any], Sequence[Any], Sequence[Any]]
"""The arguments of ReplayServer.insert except the timeout: writer, keep_from, segments, rows, items."""


class ItemServer(Protocol):
    """The writers' view of a server of tables, implemented by `ReplayClient`."""

    def send(self, message: Inserts, timeout_s: float | None) -> None:
        """Send the message, and repeat it until the server has it."""

    def send_soon(self, message: Inserts) -> Future[None]:
        """Send the message once, without waiting. The future gets any error."""

    def forget(self, writer: str) -> None:
        """Notify the server that a writer is done."""

    def forget_soon(self, writer: str) -> None:
        """Notify the server that a writer is done, without waiting. Ignore failures."""

    def new_key(self) -> int:
        """Return a key that no other item has."""


class SentItem(NamedTuple):
    """An item that the server has not acknowledged yet.

    Attributes:
        row: Its signature and its columns, in the form that ReplayServer.insert takes.
        first: The first of the writer's steps that it contains.
        stop: The step after its last step. Equal to `first` if it contains no steps.
        keep_from: The first step that later items may contain.
    """

    table: str
    key: int
    priority: float
    row: tuple[bytes, list[Any]]
    first: int
    stop: int
    keep_from: int


class ItemSender(ClientSession):
    """The sender of a writer's items, and of the steps in them. The writer's thread uses it.

    In a forked child, it starts again as if it had sent nothing, with no items, because the parent sends the
    waiting items. The child keeps the steps, and sends them with the next item that contains them.

    Args:
        client: The client of the node.
        items_per_call: The number of items to collect before they are sent.
        chunks: The writer's steps. They change only with `lock` held.
    """

    def __init__(self, client: ItemServer, items_per_call: int, chunks: StepChunks) -> None:
        super().__init__()
        self._client = client
        self._chunks = chunks
        self._least = items_per_call
        self._most = max(items_per_call, _MOST_WAITING)
        # While the writer's thread holds this lock, the watcher does nothing.
        self.lock = fork.free_in_child(Lock())

    def renew(self) -> None:
        super().renew()
        # The items that are not acknowledged. The first `_n_under_way` of them are in the message under way.
        self._items: list[SentItem] = []
        self._under_way: Future[None] | None = None
        self._n_under_way = 0
        # The error of a refused item, until `raise_refusal` raises it.
        self._refusal: Exception | None = None
        # The server has the steps before this one.
        self._sent_to = 0
        # True if the server may have steps of this writer.
        self._is_known = False

    @property
    def first_step(self) -> float:
        """The first step in any item that is not acknowledged. Infinity if the items contain no steps."""
        return min([item.first for item in self._items if item.first < item.stop], default=math.inf)

    def limit(self, item_size: int) -> int:
        """Limit how many items of this size in bytes may wait, and return that number."""
        self._most = max(self._least, min(_MOST_WAITING, _MOST_BYTES // max(1, item_size)))
        return self._most

    def add(self, item: SentItem) -> None:
        """Send an item, now or together with others. Wait if too many items wait already."""
        with self.lock:
            self._items.append(item)
            n_waiting = len(self._items) - self._n_under_way
            under_way = self._under_way
            if n_waiting < self._least:
                return
            if under_way is not None and not under_way.done():
                if n_waiting < self._most:
                    return
                _wait_for(under_way, None)
            error = self._take_answer()
            if error is None or isinstance(error, ItemsRefused):
                self._begin()
            else:
                self._send_and_wait(None)

    def flush(self, timeout_s: float | None) -> None:
        """Send the waiting items, and return once all are acknowledged.

        Raise TimeoutError if some are not acknowledged in time. These items stay, and are sent again later.
        """
        deadline = deadline_after(timeout_s)
        with self.lock:
            if self._under_way is not None and not _wait_for(self._under_way, timeout_s):
                raise TimeoutError(
                    f"{len(self._items)} items, the first one for table {self._items[0].table!r}, could not"
                    f" be inserted within {timeout_s:.3g} s. They stay on their way; client.info() shows"
                    " whether the rate limiter of a table has them wait"
                )
            self._take_answer()
            if self._items:
                self._send_and_wait(
                    None if deadline is None else max(0, deadline - time.monotonic())
                )

    def raise_refusal(self) -> None:
        """Raise the error of a refused item if there is one, but only once. This sends nothing."""
        with self.lock:
            refusal = self._refusal
            self._refusal = None
        if refusal is not None:
            raise refusal

    def close(self) -> None:
        """Let the server forget the steps. All items must be acknowledged."""
        if self._is_known:
            self._client.forget(self.key)
            self._is_known = False
            self._sent_to = 0

    def abandon(self) -> None:
        """Close without waiting, and drop the items that were not sent yet."""
        with self.lock:
            del self._items[self._n_under_way :]
            under_way = self._under_way
            is_known = self._is_known
            self._is_known = False
            self._sent_to = 0
        if under_way is not None:
            # Wait for the message under way, so that the server forgets the steps in it, too.
            under_way.add_done_callback(lambda _: self._client.forget_soon(self.key))
        elif is_known:
            self._client.forget_soon(self.key)

    def _begin(self) -> None:
        """Send all waiting items in one message. `_take_answer` takes the answer to the message."""
        self._under_way = self._client.send_soon(self._message(self._sent_to))
        self._n_under_way = len(self._items)
        self._sent_to = max(self._sent_to, *[item.stop for item in self._items])
        _watcher.add(self._look)

    def _take_answer(self) -> BaseException | None:
        """Take the answer to the message under way, if there is one, and return its error.

        After an error, the items of the message wait again.
        """
        if self._under_way is None:
            return None
        under_way = self._under_way
        self._under_way = None
        n = self._n_under_way
        self._n_under_way = 0
        try:
            under_way.result()
        except (Exception, CancelledError) as error:
            # The server may have lost any of the steps.
            self._sent_to = 0
            if isinstance(error, ItemsRefused):
                self._drop(error)
            return error
        del self._items[:n]
        return None

    def _send_and_wait(self, timeout_s: float | None) -> None:
        """Send all waiting items until they are acknowledged. Drop refused items. Raise other errors."""
        while self._items:
            try:
                try:
                    self._client.send(self._message(self._sent_to), timeout_s)
                except UnknownSteps:
                    self._client.send(self._message(0), timeout_s)
            except ItemsRefused as refused:
                self._drop(refused)
                continue
            self._sent_to = max(self._sent_to, *[item.stop for item in self._items])
            self._items.clear()

    def _drop(self, refused: ItemsRefused) -> None:
        """Drop the items that tables refused. `raise_refusal` later raises the first error."""
        self._items = [item for item in self._items if item.key not in refused.errors]
        self._refusal = self._refusal or refused.first

    def _message(self, sent_to: int) -> Inserts:
        """Return a message with all items, and with the steps in them that the server doesn't have."""
        self._is_known = True
        first = max(self.first_step, sent_to)
        stop = max([item.stop for item in self._items if item.first < item.stop], default=0)
        segments = self._chunks.segments(int(first), stop) if first < stop else []
        rows = [item.row for item in self._items]
        items = [(item.table, item.key, item.priority, i) for i, item in enumerate(self._items)]
        return self.key, self._items[-1].keep_from, segments, rows, items

    def _look(self, _: float) -> bool:
        """Take an answer and send the next message, in the watcher's thread. Return False to end its checks.

        The checks end if no message is under way, or if the writer's thread must handle an error.
        """
        if context.is_stopping():
            return False
        if not self.lock.acquire(blocking=False):
            return True
        try:
            under_way = self._under_way
            if under_way is None or not under_way.done():
                return under_way is not None
            error = under_way.exception()
            if error is not None and not isinstance(error, (*_LOST, ItemsRefused)):
                return False
            self._take_answer()
            if self._items and (error is not None or len(self._items) >= self._least):
                self._begin()
            return self._under_way is not None
        except Exception:
            # The next `add` or `flush` tries the same in the writer's thread, and raises the error there.
            return False
        finally:
            self.lock.release()


def _wait_for(future: Future[None], timeout_s: float | None) -> bool:
    """Wait for the outcome of a message. Return True if it came within this time."""
    with contextlib.suppress(CancelledError):
        try:
            future.exception(timeout_s)
        except TimeoutError as error:
            if is_interruption(error):
                raise
            return False
    return True
