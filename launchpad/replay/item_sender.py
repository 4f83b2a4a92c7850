"""ItemSender: the items of one writer on their way, many in a message where they come quickly.

    add ──▶ waiting ──at most one message at a time──▶ under way ──answered──▶ acknowledged
               ▲                                           │
               └─────────────── it was lost ───────────────┘

An item is sent at once, unless a message is under way. Then it waits for the answer, and goes with all that
wait by then: those of a slow writer arrive soon, and those of a quick one cost little. The one after the last
that may wait makes the writer wait, too.

An item that its table refuses is dropped, and the others are sent again, so that the writer goes on after it.
The writer raises the error by `raise_refusal` when it has done what it was called for.

The writer's thread sends. Where it does not come back for a while, another one does, which looks every 10 ms
while a message is under way: it never waits, and what is wrong with an item is raised in the writer's.
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

_MOST_WAITING, _MOST_BYTES = 8, 4 << 20
_LOOK_S = 0.01
_LOST = (OutcomeUnknown, ServerStopping, UnknownSteps)
"""What is wrong with a message that may simply be sent again."""

_watcher = PeriodicChecks("replay-writers", _LOOK_S)

Inserts = tuple[str, int, Sequence[Any], Sequence[Any], Sequence[Any]]
"""The arguments of ReplayServer.insert, but for the time: writer, keep_from, segments, rows, items."""


class ItemServer(Protocol):
    """A server of tables as its writers see it: `ReplayClient`."""

    def send(self, message: Inserts, timeout_s: float | None) -> None:
        """Send the message, again if need be, until the server has it."""

    def send_soon(self, message: Inserts) -> Future[None]:
        """Send it once without waiting: whatever goes wrong the future has."""

    def forget(self, writer: str) -> None:
        """Say that a writer is done."""

    def forget_soon(self, writer: str) -> None:
        """Say so without waiting; it does not matter if that fails."""

    def new_key(self) -> int:
        """Return a key that no other item has."""


class SentItem(NamedTuple):
    """An item that is not acknowledged.

    Attributes:
        row: Its signature, and its columns, as ReplayServer.insert takes them.
        first: The first step of its writer that it has.
        stop: The one after its last; as `first` where it has none.
        keep_from: The first step that later items may have.
    """

    table: str
    key: int
    priority: float
    row: tuple[bytes, list[Any]]
    first: int
    stop: int
    keep_from: int


class ItemSender(ClientSession):
    """Sends the items of a writer, and the steps that they have. For the writer's thread.

    A forked child becomes a writer that has sent nothing: the parent sends what waits. The steps stay, and
    are sent with the next item that has them.

    Args:
        client: Of the node.
        items_per_call: So many wait for each other.
        chunks: The steps; they change with `lock`.
    """

    def __init__(self, client: ItemServer, items_per_call: int, chunks: StepChunks) -> None:
        super().__init__()
        self._client = client
        self._chunks = chunks
        self._least = items_per_call
        self._most = max(items_per_call, _MOST_WAITING)
        # With it the watcher does nothing.
        self.lock = fork.free_in_child(Lock())

    def renew(self) -> None:
        super().renew()
        self._items: list[SentItem] = []  # not acknowledged; the first ones are under way
        self._under_way: Future[None] | None = None
        self._n_under_way = 0
        self._refusal: Exception | None = None  # of an item that was dropped; to be raised
        # Known to the server, which may have steps.
        self._sent_to = 0
        self._is_known = False

    @property
    def first_step(self) -> float:
        """The first one of all items that are not acknowledged; infinity if they have none."""
        return min([each.first for each in self._items if each.first < each.stop], default=math.inf)

    def limit(self, item_size: int) -> int:
        """Lets fewer items wait if they have so many bytes; returns how many at most."""
        self._most = max(self._least, min(_MOST_WAITING, _MOST_BYTES // max(1, item_size)))
        return self._most

    def add(self, item: SentItem) -> None:
        """Sends it, now or with others; waits if too many do."""
        with self.lock:
            self._items.append(item)
            n_waiting, under_way = len(self._items) - self._n_under_way, self._under_way
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
        """Sends what waits, and returns when all is acknowledged; TimeoutError: some is not, and stays."""
        ends = deadline_after(timeout_s)
        with self.lock:
            if self._under_way is not None and not _wait_for(self._under_way, timeout_s):
                raise TimeoutError(
                    f"{len(self._items)} items, the first one for table {self._items[0].table!r}, could not"
                    f" be inserted within {timeout_s:.3g} s. They stay on their way; client.info() shows"
                    " whether the rate limiter of a table has them wait"
                )
            self._take_answer()
            if self._items:
                self._send_and_wait(None if ends is None else max(0, ends - time.monotonic()))

    def raise_refusal(self) -> None:
        """Raises the error of an item that a table has refused; once, and apart from what sends."""
        with self.lock:
            refusal = self._refusal
            self._refusal = None
        if refusal is not None:
            raise refusal

    def close(self) -> None:
        """Lets the server forget the steps: all items are acknowledged."""
        if self._is_known:
            self._client.forget(self.key)
            self._is_known, self._sent_to = False, 0

    def abandon(self) -> None:
        """As `close`, and waits for nothing; what waits is not sent any more."""
        with self.lock:
            del self._items[self._n_under_way :]
            under_way, is_known = self._under_way, self._is_known
            self._is_known, self._sent_to = False, 0
        if under_way is not None:  # the server is to forget what it brings, too
            under_way.add_done_callback(lambda _: self._client.forget_soon(self.key))
        elif is_known:
            self._client.forget_soon(self.key)

    def _begin(self) -> None:
        """Sends all that waits in one message, whose answer `_take_answer` takes."""
        self._under_way = self._client.send_soon(self._message(self._sent_to))
        self._n_under_way = len(self._items)
        self._sent_to = max(self._sent_to, *[each.stop for each in self._items])
        _watcher.add(self._look)

    def _take_answer(self) -> BaseException | None:
        """The error that has come, if a message was under way. Its items then wait again."""
        if self._under_way is None:
            return None
        under_way, self._under_way = self._under_way, None
        n, self._n_under_way = self._n_under_way, 0
        try:
            under_way.result()
        except (Exception, CancelledError) as error:
            self._sent_to = 0  # the server may have lost any
            if isinstance(error, ItemsRefused):
                self._drop(error)
            return error
        del self._items[:n]
        return None

    def _send_and_wait(self, timeout_s: float | None) -> None:
        """Sends all that waits until it is acknowledged; raises what is wrong with it."""
        while self._items:
            try:
                try:
                    self._client.send(self._message(self._sent_to), timeout_s)
                except UnknownSteps:
                    self._client.send(self._message(0), timeout_s)
            except ItemsRefused as refused:
                self._drop(refused)
                continue
            self._sent_to = max(self._sent_to, *[each.stop for each in self._items])
            self._items.clear()

    def _drop(self, refused: ItemsRefused) -> None:
        """Forgets the items that a table refuses; `raise_refusal` raises the first error."""
        self._items = [each for each in self._items if each.key not in refused.errors]
        self._refusal = self._refusal or refused.first

    def _message(self, sent_to: int) -> Inserts:
        """All items, with those of their steps that the server does not have."""
        self._is_known = True
        first = max(self.first_step, sent_to)
        stop = max([each.stop for each in self._items if each.first < each.stop], default=0)
        segments = self._chunks.segments(int(first), stop) if first < stop else []
        rows = [each.row for each in self._items]
        items = [(each.table, each.key, each.priority, i) for i, each in enumerate(self._items)]
        return self.key, self._items[-1].keep_from, segments, rows, items

    def _look(self, _: float) -> bool:
        """Goes on for the writer's thread; False when no message is under way, or it is for that thread."""
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
            return False  # the next `add` or `flush` does the same, and raises it
        finally:
            self.lock.release()


def _wait_for(future: Future[None], timeout_s: float | None) -> bool:
    """Whether there is an outcome within this time."""
    with contextlib.suppress(CancelledError):
        try:
            future.exception(timeout_s)
        except TimeoutError as error:
            if is_interruption(error):
                raise
            return False
    return True
