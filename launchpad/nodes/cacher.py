"""CacherNode: a node that serves copies of another node's answers, and refreshes them in the background.

    many clients ──▶ cacher ──(one call per refresh)──▶ target

The key of an answer is the method and its arguments. The first call with a key goes through to the target.
From then on, the cacher refreshes the answer every `refresh_interval_ms`, unless a call to the target is
still pending. If an answer becomes older than `stale_after_ms`, because the target is slow or gone, the
caller gets a StaleError with the reason instead.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from launchpad.address import COURIER, Address
from launchpad.courier import Client, close, formatting, list_methods
from launchpad.courier.client.stream import Stream
from launchpad.errors import StaleError
from launchpad.nodes.base import Node
from launchpad.nodes.courier import CourierHandle, Serving, new_server, start
from launchpad.runtime import context
from launchpad.runtime.executable import Executable

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

_KEPT = 1024
"""The maximum number of keys; beyond it, the least recently used key is dropped."""


class CacherNode(Node["CourierHandle[T]"], Generic[T]):
    """A node that caches another node's answers. Use it if very many clients read from that node.

    Example:
        learner = program.add_node(lp.CourierNode(Learner), label="learner")
        cacher = lp.CacherNode(learner, refresh_interval_ms=100, stale_after_ms=1000)
        cached = program.add_node(cacher, label="cacher")
        # actors that get `cached` call get_variables() on it as they would on the learner

    Args:
        target: The handle of the node whose answers are cached.
        refresh_interval_ms: Milliseconds between refreshes of an answer.
        stale_after_ms: The greatest age of an answer, at least the interval. If the answer is older, the
            caller gets a StaleError instead.

    Raises:
        ValueError: `stale_after_ms` is less than the interval, or the interval is not more than 0.
    """

    def __init__(
        self, target: CourierHandle[T], refresh_interval_ms: float, stale_after_ms: float
    ) -> None:
        super().__init__()
        if not 0 < refresh_interval_ms <= stale_after_ms:
            raise ValueError(
                "expected 0 < refresh_interval_ms <= stale_after_ms,"
                f" got {refresh_interval_ms} and {stale_after_ms}"
            )
        self._target = target
        self._refresh_s = refresh_interval_ms / 1000
        self._stale_s = stale_after_ms / 1000
        self._address = self.allocate_address(Address("courier", kind=COURIER))

    def arguments(self) -> dict[str, Any]:
        return {"target": self._target}

    def create_handle(self) -> CourierHandle[T]:
        return CourierHandle(self, self._address)

    def to_executable(self) -> Executable:
        return ServeCache(self._target, self._address, self._refresh_s, self._stale_s)

    def __repr__(self) -> str:
        return f"CacherNode({self._target.node!r})"


@dataclass
class Entry:
    """The last answer for one key, and the pending call to the target, if there is one.

    `answer` is the value and the time at which the target was called. The answer's age counts from that time.
    """

    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    answer: tuple[Any, float] | None = None
    pending: Future[Any] | None = None
    last_error: BaseException | None = None
    # Reentrant: if the call has ended already, `add_done_callback` calls `store` at once, in this thread.
    lock: threading.RLock = field(default_factory=threading.RLock)


class Cache:
    """A cache that answers calls with copies of the target's answers, and refreshes the copies.

    Calls to the target are futures and run concurrently, so that a slow or unanswered call doesn't make other
    answers stale.
    """

    def __init__(
        self,
        target: Client[Any],
        refresh_s: float,
        stale_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target = target
        self._refresh_s = refresh_s
        self._stale_s = stale_s
        self._clock = clock
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        # Several threads make calls. Two calls with the same new key must get the same entry, so that only
        # one of them calls the target.
        self._lock = threading.Lock()

    def call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the answer. The first call with a key gets it from the target; later calls get the copy.

        Raises:
            StaleError: the copy is older than `stale_s`.
        """
        import cloudpickle

        key = cloudpickle.dumps((method, args, sorted(kwargs.items())))
        with self._lock:
            entry = self._entries.setdefault(key, Entry(method, args, kwargs))
            self._entries.move_to_end(key)
            if len(self._entries) > _KEPT:
                self._entries.popitem(last=False)
        with entry.lock:
            answer = entry.answer
            pending = None if entry.answer else self._call_target(entry)
        if pending is not None:
            return _check(pending.result(), method)
        assert answer is not None
        value, called_at = answer
        age = self._clock() - called_at
        if age <= self._stale_s:
            return value
        raise StaleError(
            f"the cached answer of {method}() is {formatting.seconds(age)} old, more than the"
            f" {formatting.seconds(self._stale_s)} allowed; the last refresh"
            + (f" failed: {entry.last_error!r}" if entry.last_error else " has not come back")
        )

    def refresh_all(self) -> None:
        """Call the target again for each answer. If a call fails, its old answer stays, and ages."""
        for entry in list(self._entries.values()):
            with entry.lock:
                # The first call with this key is still pending.
                if entry.answer is None:
                    continue
                try:
                    self._call_target(entry)
                except Exception as error:
                    entry.last_error = error

    def refresh_until(self, stop: threading.Event) -> None:
        """Refresh all answers at each interval until `stop` is set. The background thread runs this."""
        while not stop.wait(self._refresh_s):
            self.refresh_all()

    def _call_target(self, entry: Entry) -> Future[Any]:
        """Return the pending call to the target, or start a call. The caller holds the entry's lock."""
        if entry.pending is not None:
            return entry.pending
        called_at = self._clock()

        def store(call: Future[Any]) -> None:
            with entry.lock:
                entry.pending = None
                try:
                    value = _check(call.result(), entry.method)
                    entry.answer = (value, called_at)
                    entry.last_error = None
                except BaseException as error:  # This includes a cancelled call.
                    entry.last_error = error

        pending: Future[Any]
        pending = getattr(self._target.futures, entry.method)(*entry.args, **entry.kwargs)
        entry.pending = pending
        pending.add_done_callback(store)
        return pending


def _check(value: Any, method: str) -> Any:
    """Return the value. Raise TypeError if it is a stream, because a stream can be returned only once."""
    if not isinstance(value, Stream):
        return value
    value.close()
    raise TypeError(
        f"{method}() returns a stream, which a cacher cannot keep: return a list, or give callers the"
        " handle of the node itself"
    )


@dataclass
class ServeCache(Serving):
    """An executable that serves a Cache in front of the target."""

    target: Any
    address: Address
    refresh_s: float
    stale_s: float

    def open(self) -> None:
        cache = Cache(self.target, self.refresh_s, self.stale_s)
        me = context.current()
        with me.stop.interruption.forbidden():
            self._server = new_server(self.address)
            self._server.bind_fallback(cache.call, lambda: list_methods(self.target))
            start(self._server, self.address)
            refresh = cache.refresh_until
            threading.Thread(target=refresh, args=(me.stop.event,), daemon=True).start()

    def close(self) -> None:
        """Stop serving, and close the client of the target. The refreshing thread ends with the worker."""
        super().close()
        close(self.target)
