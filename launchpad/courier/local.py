"""A client's way to a server in its own process."""

from __future__ import annotations

import copy
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from launchpad.courier import codec, greeting, wire
from launchpad.courier.carriers import inprocess
from launchpad.courier.carriers.inprocess import Host, LocalCall
from launchpad.courier.counts import Counts
from launchpad.courier.options import Options
from launchpad.courier.peer import NotRun, Peer, next_pause
from launchpad.courier.serving import serving

if TYPE_CHECKING:
    from concurrent.futures import Future

    from launchpad.courier.future import CallFuture


class LocalChannel:
    """Makes the calls of one client within the process. Safe from any number of threads."""

    def __init__(self, peer: Peer, options: Options) -> None:
        self.peer = self._peer = peer
        self.options = options
        self.counts = Counts()
        self._lock = threading.Lock()
        self._keeper: _Keeper | None = None
        self._entries: set[_Entry] = set()

    @property
    def n_connections(self) -> int:
        """None are needed."""
        return 0

    def with_options(self, options: Options) -> LocalChannel:
        """The same server, other options."""
        view = copy.copy(self)
        view.options = options
        return view

    def new_deadline(self) -> float | None:
        timeout_s, on_behalf_of = self.options.timeout_s, serving.get()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        return deadline if on_behalf_of is None else on_behalf_of.limit(deadline)

    def call(self, method: bytes, /, *args: Any, **kwargs: Any) -> Any:
        """Calls and waits for the answer in this thread."""
        peer = self._peer
        body, views = codec.encode((args, kwargs))
        buffers = codec.copy_buffers(views)
        deadline = self.new_deadline()
        while True:
            done = threading.Lock()
            done.acquire()
            call = LocalCall(method, body, buffers, deadline, partial(_release, done))
            peer.wait_for(partial(self._try_admit, call), method, self.options, deadline)
            self._wait(done, call)
            try:
                return self.open_reply(call)
            except NotRun:
                continue

    def submit(self, method: bytes, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Calls without waiting."""
        from launchpad.courier.future import CallFuture

        body, views = codec.encode((args, kwargs))
        entry = _Entry(self, method, body, codec.copy_buffers(views), CallFuture())
        with self._lock:
            self._entries.add(entry)
        entry.future.add_done_callback(lambda _: self._entries.discard(entry))
        entry.send()
        return entry.future

    def close(self) -> None:
        """Futures in flight end with an error."""
        with self._lock:
            keeper, self._keeper = self._keeper, None
            entries = tuple(self._entries)
        for entry in entries:
            entry.close()
        if keeper is not None:
            keeper.close()

    def _try_admit(self, call: LocalCall, _: float | None) -> LocalCall | None:
        return call if self.admit(call) else None

    def admit(self, call: LocalCall) -> bool:
        """Hands the call to the server; False when none is up, Refused when it does not want us."""
        host = inprocess.find(self._peer.address)
        if host is None:
            return False
        self._check_token(host)
        return host.admit(call)

    def open_reply(self, call: LocalCall) -> Any:
        if call.kind == inprocess.LOST:
            if call.reply_body == wire.LATE:
                raise self._peer.late(call.method, self.options)
            raise self._peer.lost(call.method)
        reply = (call.kind, 0, b"", call.reply_body, call.reply_buffers, 0, b"")
        return self._peer.open_reply(call.method, self.options, reply)

    def keep(self, entry: _Entry) -> None:
        """Looks after a call that waits for its server, or has a deadline."""
        with self._lock:
            if self._keeper is None or not self._keeper.take(entry):
                self._keeper = _Keeper(self._peer)
                self._keeper.take(entry)

    def _check_token(self, host: Host) -> None:
        import hmac

        matches = hmac.compare_digest(host.token, self._peer.token)
        verdict = greeting.WELCOME if matches else greeting.BAD_TOKEN
        self._peer.check_welcome(greeting.Welcome(greeting.VERSION, verdict, b"", host.name))

    def _wait(self, done: threading.Lock, call: LocalCall) -> None:
        try:
            deadline = call.deadline
            left = -1.0 if deadline is None else max(0.0, deadline - time.monotonic())
            if not done.acquire(timeout=left):
                call.settle(wire.NOT_RUN, wire.LATE)
        except BaseException:  # interrupted: a call that has not begun shall not begin
            call.settle(wire.NOT_RUN, wire.LATE)
            raise


class _Entry:
    """A future, and the call that is made for it: again, if the server proves it did not run."""

    def __init__(
        self,
        channel: LocalChannel,
        method: bytes,
        body: bytes,
        buffers: list[wire.Chunk],
        future: CallFuture,
    ) -> None:
        self._channel = channel
        self._parts = (method, body, buffers)
        self.future = future
        self.deadline = channel.new_deadline()
        self.is_sent = False
        self._renew()

    def send(self) -> None:
        self._try_send()
        if (not self.is_sent or self.deadline is not None) and not self.future.done():
            self._channel.keep(self)

    def try_send(self) -> None:
        """Hands the call to the server if it is up; an error goes to the future."""
        self._try_send()
        if not self.is_sent and not self.future.done():
            try:
                self._channel.peer.check_wait(self.call.method, self._channel.options)
            except Exception as error:
                self.future.fail(error)

    def _try_send(self) -> None:
        # True first: the call may come back, to be sent again, before `admit` has returned.
        self.is_sent = True
        try:
            if not self._channel.admit(self.call):
                self.is_sent = False
        except Exception as error:
            self.future.fail(error)

    def close(self) -> None:
        """The client is closed: the call is lost if it has begun, and not sent if not."""
        peer, call = self._channel.peer, self.call
        self.future.fail(peer.lost(call.method) if call.has_begun else peer.closed(call.method))
        call.settle(wire.NOT_RUN, wire.LATE)

    def expire(self, now: float) -> None:
        if self.deadline is not None and self.deadline <= now:
            self.call.settle(wire.NOT_RUN, wire.LATE)

    def _renew(self) -> None:
        self.call = LocalCall(*self._parts, self.deadline, self._finish)
        self.future.set_on_cancel(partial(_withdraw, self.call))

    def _finish(self, call: LocalCall) -> None:
        try:
            self.future.settle(lambda: self._channel.open_reply(call))
        except NotRun:
            self._renew()
            self.is_sent = False
            self._channel.keep(self)


def _release(done: threading.Lock, _: LocalCall) -> None:
    done.release()


def _withdraw(call: LocalCall) -> None:
    call.settle(wire.NOT_RUN, wire.LATE)


class _Keeper:
    """A thread for what futures cannot do by themselves: wait for a server, watch a deadline.

    Lives while there is something to look after.
    """

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._entries: deque[_Entry] = deque()
        self._changed = threading.Condition()
        self._has_ended = False
        self._is_closing = False
        name = f"courier-futures-{peer.server or peer.address}"
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def take(self, entry: _Entry) -> bool:
        """False when it has ended and another is needed."""
        with self._changed:
            if self._has_ended:
                return False
            self._entries.append(entry)
            self._changed.notify()
            if not self._thread.is_alive():
                self._thread.start()
            return True

    def close(self) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _main(self) -> None:
        pause_s = next_pause()
        while True:
            with self._changed:
                entries = self._entries = deque(e for e in self._entries if not e.future.done())
                if not entries or self._is_closing:
                    self._has_ended = True
                    break
                waiting = [entry for entry in entries if not entry.is_sent]
                self._changed.wait(pause_s if waiting else self._until_first_deadline())
                entries = self._entries.copy()
            pause_s = next_pause(pause_s) if waiting else next_pause()
            self._look_after(entries)

    def _look_after(self, entries: deque[_Entry]) -> None:
        now = time.monotonic()
        for entry in entries:
            if not entry.is_sent and not entry.future.done():
                entry.try_send()
            entry.expire(now)

    def _until_first_deadline(self) -> float | None:
        deadlines = [e.deadline for e in self._entries if e.deadline is not None]
        if not deadlines:
            return 0.02  # sent, and without a deadline: it will be done, and then we end
        return max(0.0, min(deadlines) - time.monotonic())
