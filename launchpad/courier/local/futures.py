"""The calls of a client to a server in its own process that nobody waits for: futures.

    submit ──▶ FutureCall ──▶ a thread of the server's ──▶ future
                 │    ▲
                 ▼    │ the server is not up yet, or stops before it has begun the call
                Keeper

They never run in the thread that submits them, which has other things to do.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from launchpad.courier.carriers.inprocess import LocalCall
from launchpad.courier.clients.peer import NotRun, Peer, next_pause
from launchpad.courier.protocol import wire
from launchpad.courier.values import codec
from launchpad.courier.values.memory import copies

if TYPE_CHECKING:
    from concurrent.futures import Future

    from launchpad.courier.local.channel import LocalChannel


class LocalFutures:
    """The futures of one client, whatever options they have."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._lock = threading.Lock()
        self._keeper: _Keeper | None = None
        self._entries: set[_Entry] = set()

    def submit(
        self, channel: LocalChannel, method: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Future[Any]:
        """Makes a call with the options of `channel`."""
        body, views = codec.encode_call(args, kwargs)
        if views is None:
            return channel.by_socket().submit(method, *args, **kwargs)
        entry = _Entry(self, channel, method, body, views)
        with self._lock:
            self._entries.add(entry)
        entry.send()
        return entry.future

    def forget(self, entry: _Entry) -> None:
        """Its future is done."""
        self._entries.discard(entry)

    def keep(self, entry: _Entry) -> None:
        """Looks after a call that waits for its server, or has a deadline."""
        with self._lock:
            if self._keeper is None or not self._keeper.take(entry):
                self._keeper = _Keeper(self._peer)
                self._keeper.take(entry)

    def close(self) -> None:
        """Those in flight end with an error."""
        with self._lock:
            keeper, self._keeper = self._keeper, None
            entries = tuple(self._entries)
        for entry in entries:
            entry.close()
        if keeper is not None:
            keeper.close()


class _Entry:
    """A future, and the call that is made for it: again, if the server proves it did not run."""

    def __init__(
        self,
        futures: LocalFutures,
        channel: LocalChannel,
        method: bytes,
        body: bytes,
        views: Sequence[memoryview],
    ) -> None:
        from launchpad.courier.clients.future import CallFuture

        self._began = time.monotonic()
        self._futures = futures
        self._channel = channel
        self._method = method
        self._body = body
        self._buffers: Sequence[memoryview] = copies(views) if views else ()
        self._n_out = wire.size(body, views) if views else len(body)
        self._n_in = 0
        self._on_behalf_of = channel.new_serving(self._began)
        self._call: _SentCall | None = None
        self.is_sent = False
        self.deadline = self._on_behalf_of.deadline if self._on_behalf_of is not None else None
        self.future = CallFuture()
        self.future.set_on_cancel(self._withdraw)
        self._counts = channel.counts[method]
        self._counts.started += 1
        self.future.add_done_callback(self._end)

    def send(self) -> None:
        self._try_send()
        if (not self.is_sent or self.deadline is not None) and not self.future.done():
            self._futures.keep(self)

    def try_again(self) -> None:
        """Hands the call to the server if it is up; an error goes to the future."""
        self._try_send()
        if not self.is_sent and not self.future.done():
            try:
                self._channel.peer.check_wait(self._method, self._channel.options)
            except Exception as error:
                self.future.fail(error)

    def finish(self, call: LocalCall) -> None:
        """The call has come to an end, in whatever thread that is."""
        reply = call.reply
        self._n_in = wire.size(reply[1], reply[2]) if reply[2] else len(reply[1])
        if reply[0] == wire.STREAM:
            self._channel.attach_apart(self._method, reply[1], self.future.settle)
            return
        try:
            self.future.settle(lambda: self._channel.open_reply(self._method, reply))
        except NotRun:
            self.is_sent = False
            self._futures.keep(self)

    def expire(self, now: float) -> None:
        if self.deadline is not None and self.deadline <= now:
            self.future.fail(self._channel.peer.late(self._method, self._channel.options))
            self._withdraw()

    def close(self) -> None:
        """The client is closed: the call is lost if it has begun, and not sent if not."""
        peer, call = self._channel.peer, self._call
        has_begun = call is not None and call.has_begun
        self.future.fail(peer.lost(self._method) if has_begun else peer.closed(self._method))
        self._withdraw()

    def _try_send(self) -> None:
        # True first: the call may come back, to be sent again, before `_enter` has returned.
        self.is_sent = True
        try:
            if not self._enter():
                self.is_sent = False
        except Exception as error:
            self.future.fail(error)

    def _enter(self) -> bool:
        channel, method = self._channel, self._method
        house = channel.greet()
        if house is None:
            return False
        if self._n_out > wire.SMALL:
            channel.peer.check_size(method, self._n_out)
        counts = channel.count_at(house, method)
        limit = channel.peer.max_bytes
        call = self._call = _SentCall(
            self, method, self._body, self._buffers, limit, counts, self._on_behalf_of
        )
        # A cancel finds the call from here on; one that came before is found by us.
        return self.future.done() or call.enter(house)

    def _withdraw(self) -> None:
        call = self._call
        if call is not None:
            call.give_up()

    def _end(self, future: Future[Any]) -> None:
        self._futures.forget(self)
        if future.cancelled():
            self._withdraw()  # the future will ask for it, too, but then we know of no call
        self._call, self._buffers = None, ()  # the future may be kept, and keeps us
        if future.cancelled() or future.exception() is not None:
            self._counts.errors += 1
        self._counts.finish(time.monotonic() - self._began, self._n_in, self._n_out)


class _SentCall(LocalCall):
    """A call that was made for an entry, which hears of its end."""

    def __init__(self, entry: _Entry, *args: Any) -> None:
        super().__init__(*args)
        self._entry = entry

    def finish(self) -> None:
        self._entry.finish(self)


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
        name = f"courier-futures-{peer.label}"
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
                entry.try_again()
            entry.expire(now)

    def _until_first_deadline(self) -> float | None:
        deadlines = [e.deadline for e in self._entries if e.deadline is not None]
        if not deadlines:
            return 0.02  # sent, and without a deadline: it will be done, and then we end
        return max(0.0, min(deadlines) - time.monotonic())
