"""CacherNode: answers in the place of another node, from a copy that is refreshed in the background.

    many clients ──▶ cacher ──(one call per refresh)──▶ target

A call is known by its method and arguments. The first one of its kind goes through to the target; from
then on its answer is refreshed every `refresh_interval_ms`, unless a question is still under way. An
answer older than `stale_after_ms`, because the target is slow or gone, is not given out: the caller gets
a StaleError that says why.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from launchpad import context
from launchpad.address import COURIER, Address
from launchpad.courier import Client, Server, close, list_methods
from launchpad.courier.streams.stream import Stream
from launchpad.errors import StaleError
from launchpad.executable import Executable
from launchpad.nodes.base import Node
from launchpad.nodes.courier import CourierHandle, new_server, start

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")

_KEPT = 1024
"""Different calls that are kept fresh; past that the one not asked for the longest is dropped."""


class CacherNode(Node["CourierHandle[T]"], Generic[T]):
    """A caching stand-in for another node: for one server that very many clients read from.

    Example:
      learner = program.add_node(lp.CourierNode(Learner), label="learner")
      cacher = lp.CacherNode(learner, refresh_interval_ms=100, stale_after_ms=1000)
      cached = program.add_node(cacher, label="cacher")
      # actors that are given `cached` call get_variables() on it as on the learner

    Args:
      target: The handle of the node it stands for.
      refresh_interval_ms: How often answers are refreshed.
      stale_after_ms: The greatest age of an answer; older ones are refused. More than the interval.
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
        """The target."""
        return {"target": self._target}

    def create_handle(self) -> CourierHandle[T]:
        """A handle like the target's."""
        return CourierHandle(self, self._address)

    def to_executable(self) -> Executable:
        """The stand-in."""
        return ServeCache(self._target, self._address, self._refresh_s, self._stale_s)

    def __repr__(self) -> str:
        return f"CacherNode({self._target.node!r})"


@dataclass(frozen=True)
class Answer:
    """What the target said. `asked_at` is when it was asked: that is how old the answer may be."""

    value: Any
    asked_at: float


@dataclass
class Entry:
    """One kind of call: its last answer, and the one question that may be under way."""

    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    answer: Answer | None = None
    question: Future[Any] | None = None
    last_error: BaseException | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)


class Cache:
    """Answers calls from copies, and keeps the copies fresh.

    Questions to the target are futures, side by side: one that it takes long over, or never answers,
    makes no other answer stale.
    """

    def __init__(
        self,
        target: Client[Any],
        refresh_s: float,
        stale_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._target, self._refresh_s, self._stale_s = target, refresh_s, stale_s
        self._clock = clock
        self._entries: OrderedDict[bytes, Entry] = OrderedDict()
        self._lock = threading.Lock()

    def call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The answer, from the copy if there is a fresh one; the first one whatever its age."""
        entry = self._entry(method, args, kwargs)
        with entry.lock:
            answer, question = entry.answer, None if entry.answer else self._ask(entry)
        if question is not None:
            return _check(question.result(), method)
        assert answer is not None
        return self._fresh(answer, entry)

    def refresh_all(self) -> None:
        """Asks the target anew for all that it has answered; an error is noted, and the answer ages."""
        for entry in list(self._entries.values()):
            with entry.lock:
                if entry.answer is None:
                    continue  # those who wait for the first one have asked for it
                try:
                    self._ask(entry)
                except Exception as error:
                    entry.last_error = error

    def refresh_until(self, stop: threading.Event) -> None:
        """The background thread."""
        while not stop.wait(self._refresh_s):
            self.refresh_all()

    def _ask(self, entry: Entry) -> Future[Any]:
        """The question that is under way; asked now if there is none. The entry is locked."""
        if entry.question is not None:
            return entry.question
        asked_at = self._clock()
        question = getattr(self._target.futures, entry.method)(*entry.args, **entry.kwargs)
        entry.question = question
        question.add_done_callback(lambda done: _take(entry, done, asked_at))
        return question  # type: ignore[no-any-return]

    def _fresh(self, answer: Answer, entry: Entry) -> Any:
        age = self._clock() - answer.asked_at
        if age <= self._stale_s:
            return answer.value
        raise StaleError(
            f"the cached answer of {entry.method}() is {age * 1000:.0f} ms old, more than the"
            f" {self._stale_s * 1000:.0f} ms allowed; the last refresh"
            + (f" failed: {entry.last_error!r}" if entry.last_error else " has not come back")
        )

    def _entry(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry:
        import cloudpickle

        key = cloudpickle.dumps((method, args, sorted(kwargs.items())))
        with self._lock:
            entry = self._entries.setdefault(key, Entry(method, args, kwargs))
            self._entries.move_to_end(key)
            if len(self._entries) > _KEPT:
                self._entries.popitem(last=False)
        return entry


def _take(entry: Entry, question: Future[Any], asked_at: float) -> None:
    with entry.lock:
        entry.question = None
        try:
            value = _check(question.result(), entry.method)
            entry.answer, entry.last_error = Answer(value, asked_at), None
        except BaseException as error:  # a cancelled question too
            entry.last_error = error


def _check(value: Any, method: str) -> Any:
    """The value, if it can be given out more than once."""
    if not isinstance(value, Stream):
        return value
    value.close()
    raise TypeError(
        f"{method}() returns a stream, which a cacher cannot keep: return a list, or give callers the"
        " handle of the node itself"
    )


@dataclass
class ServeCache(Executable):
    """Serves a Cache in front of the target."""

    target: Any
    address: Address
    refresh_s: float
    stale_s: float
    _server: Server | None = field(default=None, init=False)

    def open(self) -> None:
        """Starts the server and the refreshing thread."""
        cache = Cache(self.target, self.refresh_s, self.stale_s)
        me = context.current()
        with me.interruption.forbidden():
            self._server = new_server(self.address)
            self._server.bind_fallback(cache.call, lambda: list_methods(self.target))
            start(self._server, self.address)
            refresher = threading.Thread(
                target=cache.refresh_until, args=(me.stop_event,), daemon=True
            )
            refresher.start()

    def abandon(self) -> None:
        """Gives up the calls that run."""
        if self._server is not None:
            self._server.stop(0.0)

    def close(self) -> None:
        """Stops serving and asking; the thread ends with the worker."""
        if self._server is not None:
            self._server.stop()
        close(self.target)
