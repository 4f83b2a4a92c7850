"""A link: what the messages of a client go through, so that they arrive later than they would.

    client ── arguments ──▶ Delay · Bandwidth ──▶ server
           ◀── result ───── Bandwidth ◀──────────

For tests and experiments, on any transport: a network that is slow, a straggler. A message that waits holds
up those behind it, as on a wire; calls that are under way at the server do not. The delay is simulated in
the client, and is part of a call's time: past its deadline the call fails, wherever its message is.
"""

from __future__ import annotations

import contextlib
import copy
import heapq
import itertools
import math
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, Self

from launchpad.courier import fork
from launchpad.courier.buffers import copies
from launchpad.courier.call_stack import CallContext, current_call
from launchpad.courier.client.channel import Channel
from launchpad.courier.client.remote_server import Options
from launchpad.courier.client.stream import Stream
from launchpad.courier.codec import pickling
from launchpad.courier.interruptions import Condition, Lock
from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.own_threads import OwnThread
from launchpad.courier.protocol import framing

_LATE_S = 1e-4  # a thread that sleeps wakes up to so much later: the last moment it stays awake
_PIECE_S = 0.05  # a thread that is to stop is interrupted between two pieces of its sleep
_IDLE_S = 1.0


@dataclass(frozen=True)
class Delay:
    """Each call is on its way to the server for so long; its result comes back at once.

    Example:
        slow = learner.through(lp.edges.Delay(0.05))

    Raises:
        ValueError: it is not more than 0.
    """

    seconds: float

    def __post_init__(self) -> None:
        if not _is_positive(self.seconds):
            raise ValueError(f"Delay takes seconds, more than 0, not {self.seconds!r}")


@dataclass(frozen=True)
class Bandwidth:
    """So many bytes a second at most go each way, one message after the other.

    Example:
        thin = learner.through(lp.edges.Bandwidth(100e6))

    Raises:
        ValueError: it is not more than 0.
    """

    bytes_per_s: float

    def __post_init__(self) -> None:
        if not _is_positive(self.bytes_per_s):
            raise ValueError(
                f"Bandwidth takes bytes a second, more than 0, not {self.bytes_per_s!r}"
            )


def _is_positive(number: object) -> bool:
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    return is_number and 0 < number < math.inf  # type: ignore[operator]


class Link:
    """What one client's messages go through, from any thread. Pickled: a new one, with the same rules."""

    def __init__(self, *rules: Delay | Bandwidth) -> None:
        self.rules = rules
        self._delay_s = sum(rule.seconds for rule in rules if isinstance(rule, Delay))
        rates = [rule.bytes_per_s for rule in rules if isinstance(rule, Bandwidth)]
        self._bytes_per_s = min(rates, default=math.inf)
        self._lock = fork.free_in_child(Lock())
        self._free_at = [0.0, 0.0]  # from when on it takes the next message: there, and back

    def arrival(self, n_bytes: int, *, is_result: bool = False) -> float:
        """When a message of so many bytes, sent now, is through; by `time.monotonic()`."""
        now = time.monotonic()
        with self._lock:
            begins = max(now, self._free_at[is_result])
            self._free_at[is_result] = sent = begins + n_bytes / self._bytes_per_s
        return sent if is_result else sent + self._delay_s

    def __reduce__(self) -> tuple[Any, ...]:
        return Link, self.rules


class LinkedChannel(Channel):
    """A channel whose messages go through a link; it counts what they take with it."""

    def __init__(self, inner: Channel, link: Link) -> None:
        super().__init__(inner.peer, inner.options)
        self.inner, self.link = inner, link
        self._timer = _Timer()

    @property
    def n_connections(self) -> int:
        return self.inner.n_connections

    def with_options(self, options: Options) -> Self:
        view = copy.copy(self)
        view.options, view.inner = options, self.inner.with_options(options)
        return view

    def with_trace(self, trace: bytes) -> Self:
        view = super().with_trace(trace)
        view.inner = self.inner.with_trace(trace)
        return view

    def call(self, method: bytes, /, *args: Any, **kwargs: Any) -> Any:
        counts, began = self.counts[method], time.monotonic()
        deadline = self.options.find_deadline(began)
        body, views = pickling.encode_call(args, kwargs)
        n_out, n_in = framing.size(body, views or ()), 0
        counts.started += 1
        try:
            _sleep_until(_earlier(self.link.arrival(n_out), deadline))
            self.peer.time_left(method, self.options, deadline)  # raises if there is none
            with _limited(deadline):
                result = self.inner.call(method, *args, **kwargs)
            n_in = _size_of(result)
            _sleep_until(_earlier(self.link.arrival(n_in, is_result=True), deadline))
            self.peer.time_left(method, self.options, deadline)
            return result
        except BaseException:
            counts.errors += 1
            raise
        finally:
            counts.finish(time.monotonic() - began, n_in, n_out)

    def _submit(self, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[Any]:
        from launchpad.courier.client.future import CallFuture

        counts, began = self.counts[method], time.monotonic()
        deadline = self.options.find_deadline(began)
        body, views = pickling.encode_call(args, kwargs)
        n_out = framing.size(body, views or ())
        if views is not None:  # they may be changed before they are sent
            args, kwargs = pickle.loads(body, buffers=copies(views))
        counts.started += 1
        future = CallFuture()
        n_in = 0

        def send() -> None:
            if future.done():
                return
            if self._timer.is_closed:
                future.fail(self.peer.closed(method))
                return
            try:
                self.peer.time_left(method, self.options, deadline)
                with _limited(deadline):
                    inner = self.inner.submit(method, *args, **kwargs)
            except Exception as error:
                future.fail(error)
                return
            future.on_cancel = partial(_cancel, inner)
            inner.add_done_callback(receive)

        def receive(inner: Future[Any]) -> None:
            nonlocal n_in
            if inner.cancelled():
                future.cancel()
                return
            at = time.monotonic()
            if inner.exception() is None:
                try:
                    n_in = _size_of(inner.result())
                except Exception as error:
                    future.fail(error)
                    return
                at = _earlier(self.link.arrival(n_in, is_result=True), deadline)
            self._timer.call_at(at, partial(future.complete, partial(take, inner)))

        def take(inner: Future[Any]) -> Any:
            if inner.exception() is None:
                self.peer.time_left(method, self.options, deadline)
            return inner.result()

        def end(_: Future[Any]) -> None:
            counts.errors += future.cancelled() or future.exception() is not None
            counts.finish(time.monotonic() - began, n_in, n_out)

        future.add_done_callback(end)
        self._timer.call_at(_earlier(self.link.arrival(n_out), deadline), send)
        return future

    def close(self) -> None:
        self._timer.close()
        self.inner.close()


class _Timer:
    """Calls functions at their times, in one thread, which runs while there are any."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self.is_closed = False
        self.drop_inherited()
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """For a forked child: the thread is the parent's, and so is what is under way."""
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._changed = Condition()
        self._thread: threading.Thread | None = None

    def call_at(self, at: float, function: Callable[[], object]) -> None:
        """At once, when it is closed."""
        with self._changed:
            if not self.is_closed:
                heapq.heappush(self._due, (at, next(self._numbers), function))
                self._changed.notify()
                if self._thread is None:
                    name = "courier-link"
                    self._thread = OwnThread(target=self._run, name=name)
                    self._thread.start()
                return
        function()

    def close(self) -> None:
        """Calls what is left at once, and ends the thread."""
        with self._changed:
            self.is_closed = True
            thread, due, self._due = self._thread, sorted(self._due), []
            self._thread = None
            self._changed.notify()
        for _, _, function in due:
            function()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._thread is not threading.current_thread():
                    return
                wait_s = self._due[0][0] - time.monotonic() if self._due else _IDLE_S
                if wait_s > 0:
                    self._changed.wait(wait_s)
                    if not self._due:
                        self._thread = None
                        return
                    continue
                _, _, function = heapq.heappop(self._due)
            function()


def _cancel(future: Future[Any]) -> None:
    future.cancel()


def _earlier(at: float, deadline: float | None) -> float:
    return at if deadline is None else min(at, deadline)


@contextlib.contextmanager
def _limited(deadline: float | None) -> Iterator[None]:
    """Calls that are made within it have this deadline: what is left to them of one that began earlier."""
    outer = current_call.get()
    token = current_call.set(CallContext(deadline, outer.trace if outer is not None else b""))
    try:
        yield
    finally:
        current_call.reset(token)


def _sleep_until(at: float) -> None:
    while (left_s := at - time.monotonic()) > 0:
        time.sleep(min(max(0.0, left_s - _LATE_S), _PIECE_S))


def _size_of(result: object) -> int:
    """The bytes of a result; of a stream, whose items come later, none."""
    return 0 if isinstance(result, Stream) else framing.size(*pickling.encode(result))
