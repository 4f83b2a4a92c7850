"""The two ends of a stream without anything between them, and peers that do not keep to the rules."""

from __future__ import annotations

import contextlib
import itertools
import pickle
import socket
import struct
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from launchpad import courier
from launchpad.courier.codec import pickling
from launchpad.courier.protocol import framing
from launchpad.courier.server.dispatcher import UnclaimedStreams
from launchpad.courier.streams import arguments, receiver, sender
from launchpad.courier.streams.items import FRAME_BYTES, decode_item, decode_shared
from launchpad.courier.streams.receiver import (
    ENDED,
    NOT_HERE,
    QUICK_WINDOW_ITEMS,
    WINDOW_BYTES,
    WINDOW_ITEMS,
    StreamReceiver,
    decode_credit,
)
from launchpad.courier.streams.sender import StreamSender
from launchpad.courier.telemetry.counters import MethodCounts
from tests.helpers import raw_sockets


class Wire:
    """Carries frames from an Outgoing to an Incoming, and the credit back."""

    def __init__(self, items: object) -> None:
        self.outgoing = StreamSender(iter(items))
        self.outgoing.items.put = self._carry
        self.incoming = StreamReceiver(0, self._credit, MethodCounts())
        self.incoming.open()
        self.frames: list[framing.Fields] = []

    def pump(self) -> int:
        """Sends all that there is room for; returns how many items that were."""
        before = self.incoming.n_items
        while self.outgoing.items.has_credit:
            self.pump_once()
        return self.incoming.n_items - before

    def pump_once(self) -> None:
        self.outgoing.pull(lambda: True)
        self.outgoing.items.put_waiting()

    def take(self) -> object:
        return decode_item(self.incoming.take())

    def _carry(self, chunks) -> None:
        self.frames.append(decode(chunks))
        self.incoming.receive(self.frames[-1])

    def _credit(self, chunks) -> None:
        self.outgoing.items.allow(*decode_credit(decode(chunks)))


def decode(chunks) -> framing.Fields:
    decoder = framing.FrameDecoder()
    data = b"".join(chunks)
    frames = []
    while data:
        n = min(len(data), len(decoder.buffer))
        decoder.buffer[:n] = data[:n]
        frames += decoder.received(n)
        data = data[n:]
    (frame,) = frames
    return frame


@pytest.fixture
def clock(monkeypatch) -> SimpleNamespace:
    """Stands still unless it is told otherwise."""
    clock = SimpleNamespace(now=0.0)
    for end in (sender, receiver):
        monkeypatch.setattr(end, "_monotonic", lambda: clock.now)
    return clock


# Credits.


def test_items_are_sent_while_there_is_credit_which_comes_back_by_the_half_window() -> None:
    ends = Wire(range(1000))

    assert ends.pump() == WINDOW_ITEMS
    for _ in range(WINDOW_ITEMS // 2 - 1):
        ends.incoming.take()
    assert ends.pump() == 0
    ends.incoming.take()
    assert ends.pump() == WINDOW_ITEMS // 2


@pytest.mark.parametrize("size", [1, 1 << 20, WINDOW_BYTES + 1])
def test_bytes_are_limited_as_items_are_and_items_of_any_size_get_through(size: int) -> None:
    """At whatever point the consumer takes them, there is always credit for one more."""
    ends = Wire(bytes([i]) * size for i in range(9))
    taken, most_ahead = [], 0

    while True:
        ends.pump()
        most_ahead = max(most_ahead, ends.incoming.n_items - len(taken))
        item = ends.take()
        assert item is not NOT_HERE
        if item is ENDED:
            break
        taken.append(item[0])

    assert taken == list(range(9))
    assert ends.take() is ENDED
    assert most_ahead == min(9, max(1, WINDOW_BYTES // size))


def test_what_breaks_a_stream_off_follows_what_has_arrived() -> None:
    ends = Wire(range(1000))
    ends.pump()
    first, second = ConnectionError("first"), ConnectionError("second")

    ends.incoming.abort(first)
    ends.incoming.abort(second)

    assert ends.take() == 0
    assert ends.incoming.error is first


def test_who_waits_is_told_once_and_at_once_if_there_is_something() -> None:
    ends = Wire(range(2))
    told = []
    ends.incoming.notify(lambda: told.append("first"))
    before = list(told)

    ends.pump()
    ends.incoming.notify(lambda: told.append("second"))

    assert before == []
    assert told == ["first", "second"]


def test_the_window_is_larger_while_items_are_taken_quickly(clock) -> None:
    ends = Wire(range(10**9))
    ahead = []

    for seconds in (0.0, 0.001, 0.0):  # for each item
        for _ in range(2 * QUICK_WINDOW_ITEMS):
            ends.pump()
            clock.now += seconds
            ends.take()
        ends.pump()
        ahead.append(ends.incoming.n_items - ends.incoming._counts.items)

    quick, slow, quick_again = ahead
    assert WINDOW_ITEMS // 2 < slow <= WINDOW_ITEMS
    assert QUICK_WINDOW_ITEMS // 2 < quick <= QUICK_WINDOW_ITEMS
    assert QUICK_WINDOW_ITEMS // 2 < quick_again <= QUICK_WINDOW_ITEMS


# Frames.


def test_quick_items_share_frames_keep_their_order_and_are_counted(clock) -> None:
    mixed = [0, "one", b"two", 3.5, None, True, {"six": 6}, (7,), -8, 1 << 5000]
    ends = Wire(mixed * 20)
    ends.outgoing.items.counts, counts = MethodCounts(), ends.incoming._counts
    taken = []

    while (item := ends.take()) is not ENDED:
        if item is NOT_HERE:
            ends.pump()
        else:
            taken.append(item)

    assert taken == mixed * 20
    assert len(ends.frames) < len(taken) / 4
    assert counts.items == ends.outgoing.items.counts.items == len(taken)
    assert counts.bytes_in == ends.outgoing.items.counts.bytes_out > 0


def test_a_slow_item_goes_at_once_and_so_do_those_that_follow_it(clock) -> None:
    def items():
        for i in range(60):
            clock.now += 0.001 if i == 40 else 0.0
            yield i

    ends = Wire(items())
    taken = []

    while ends.outgoing.items.has_credit:
        before = len(ends.frames)
        ends.pump_once()
        sent = [ends.take() for _ in range(ends.incoming.n_items - len(taken))]
        taken += sent
        if 40 in sent:
            assert sent[-1] == 40  # it waits for none
        assert len(ends.frames) == before + 1 or ends.outgoing.items.has_ended
        if 41 <= taken[-1] < 48:
            assert len(sent) == 1

    assert taken == [*range(60), ENDED][: len(taken)]


def test_a_generator_that_gives_one_list_again_and_again_is_read_as_it_was_then(clock) -> None:
    def items():
        growing: list[int] = []
        for i in range(60):
            growing.append(i)
            yield growing

    ends = Wire(items())
    ends.pump()

    assert [len(ends.take()) for _ in range(60)] == list(range(1, 61))


def test_what_waits_for_an_iterator_that_blocks_is_put_by_another_thread(clock) -> None:
    blocks, goes_on = threading.Event(), threading.Event()

    def items():
        yield from range(20)
        blocks.set()
        goes_on.wait(60)
        yield 20

    ends = Wire(items())
    thread = threading.Thread(target=ends.pump)
    thread.start()
    assert blocks.wait(60)
    ends.outgoing.items.put_waiting()
    before = [ends.take() for _ in range(21)]
    goes_on.set()
    thread.join(60)

    assert before == [*range(20), NOT_HERE]
    assert [ends.take(), ends.take()] == [20, ENDED]


def test_a_frame_that_items_share_is_limited_in_bytes_and_large_items_have_their_own(clock) -> None:
    ends = Wire(b"x" * (3000 if i != 50 else 100_000) for i in range(60))

    ends.pump()

    sizes = [len(frame[3]) for frame in ends.frames]
    assert max(sizes) < 101_000
    assert sorted(sizes)[-2] < FRAME_BYTES
    assert len(sizes) < 20
    assert [len(ends.take()) for _ in range(60)] == [3000] * 50 + [100_000] + [3000] * 9


def test_where_the_other_side_takes_little_at_once_each_item_has_its_own_frame(clock) -> None:
    ends = Wire([b"x" * 100, 1 << 500, "y"] * 10)
    ends.outgoing.items.takes_bytes = 200

    ends.pump()

    assert len(ends.frames) == 31
    assert ends.incoming.n_items == 30


@pytest.mark.parametrize("body", [b"", b"no pickle", pickle.dumps(7)])
def test_credits_and_shared_frames_that_are_none_are_a_breach_of_the_protocol(body: bytes) -> None:
    with pytest.raises(courier.ProtocolError, match="items of a stream"):
        decode_shared(body)
    with pytest.raises(courier.ProtocolError, match="a credit that is not a number"):
        decode_credit((framing.CREDIT, 0, b"", body, (), 0, b""))


def test_a_ticket_is_good_for_one_time_and_streams_that_are_not_claimed_are_closed() -> None:
    closed = []

    class Items:
        def __init__(self, name: str) -> None:
            self.close = lambda: closed.append(name)

        def __next__(self) -> int:
            return 1

    tickets = UnclaimedStreams()
    kept = StreamSender(Items("kept"))
    ticket = tickets.put(kept, "other", MethodCounts(), 1)
    tickets.put(StreamSender(Items("dropped")), "owner", MethodCounts(), 1)
    tickets.put(StreamSender(Items("dropped later")), "owner", MethodCounts(), 2)

    tickets.drop("owner", 1)
    tickets.drop("owner")

    assert closed == ["dropped", "dropped later"]
    assert tickets.take(ticket) is kept
    with pytest.raises(LookupError, match="not here"):
        tickets.take(ticket)


# Peers that do not keep to the rules.


@pytest.fixture
def stranger(serve, unix_address, gate) -> Iterator[socket.socket]:
    """A connection of a client that says what it likes."""
    serve(
        unix_address,
        rows=itertools.count,
        total=sum,
        total_later=lambda items: gate.wait() and sum(items),
        echo=lambda value: value,
    )
    with raw_sockets.greeted(unix_address) as sock:
        yield sock


def say(
    sock: socket.socket, kind: int, number: int = 0, body: bytes = b"", notes=b"", name=b""
) -> None:
    sock.sendall(b"".join(framing.encode(kind, number, name, body, (), 0, notes)))


def ask_for_rows(sock: socket.socket) -> None:
    say(sock, framing.CALL, 0, pickling.encode(((), {}))[0], name=b"rows")


def read_to_end(sock: socket.socket) -> None:
    with contextlib.suppress(ConnectionResetError):
        while sock.recv(1 << 16):
            pass


def call_with_stream() -> tuple[bytes, bytes]:
    """Its arguments, and the note that says how many of them are streams."""
    taken, kwargs, _ = arguments.take_out((iter([]),), {})
    return pickling.encode((taken, kwargs))[0], arguments.encode_count(1)


@pytest.mark.parametrize(
    ("kind", "number", "body"),
    [
        (framing.ITEM, 0, b""),
        (framing.ITEM, 7, b""),
        (framing.ITEMS, 7, b""),
        (framing.CREDIT, 3, struct.pack("<IQ", 1, 1)),
        (framing.CREDIT, 0, b"short"),
        (framing.STREAM, 0, b""),
    ],
)
def test_frames_that_no_stream_expects_end_that_connection_only(
    stranger, connect, unix_address, kind, number, body
) -> None:
    good = connect(unix_address)
    good.echo(1)
    ask_for_rows(stranger)

    say(stranger, kind, number, body)

    read_to_end(stranger)
    assert good.echo(2) == 2


def test_items_without_credit_end_that_connection_only(stranger, connect, unix_address) -> None:
    good = connect(unix_address)
    good.echo(1)
    body, notes = call_with_stream()
    say(stranger, framing.CALL, 0, body, notes, b"total_later")

    item = pickling.encode(1)[0]
    with contextlib.suppress(OSError):  # the server may have hung up by now
        for _ in range(WINDOW_ITEMS + 1):
            say(stranger, framing.ITEM, 1, item)

    read_to_end(stranger)
    assert good.echo(2) == 2


def test_placeholders_without_streams_are_bad_arguments(stranger) -> None:
    body, _ = call_with_stream()

    say(stranger, framing.CALL, 0, body, b"", b"total")
    head = stranger.recv(1 << 16)

    assert head[1] == framing.ERROR
    assert b"an argument that is a stream, in a call that has none" in head


@contextlib.contextmanager
def server_of_items(address: str, n: int) -> Iterator[None]:
    """It answers each call with a stream of so many items, whatever credit there is, and is gone."""

    def answer(sock: socket.socket) -> None:
        raw_sockets.accept(sock)
        sock.recv(1 << 16)
        sock.sendall(b"".join(framing.encode(framing.STREAM, 0)))
        sock.recv(1 << 16)  # the credit
        item = b"".join(framing.encode(framing.ITEM, 0, b"", pickling.encode(1)[0]))
        with contextlib.suppress(OSError):  # the client may have hung up by now
            sock.sendall(item * n)

    with raw_sockets.listening(address, answer):
        yield


def test_a_server_that_is_gone_is_an_error_and_never_a_silent_end(connect, unix_address) -> None:
    failures: list[Exception] = []
    watched = connect(unix_address, failure_check=lambda: failures[0] if failures else None)
    with server_of_items(unix_address, 3):
        stream, watched_stream = connect(unix_address).count(), watched.count()
        failures.append(courier.WorkerFailed("victim was killed"))

        assert [next(stream) for _ in range(3)] == [1, 1, 1]
        with pytest.raises(courier.StreamBroken, match="in the middle of the stream 'count'"):
            next(stream)
        with pytest.raises(courier.OutcomeUnknown):
            next(stream)
        with pytest.raises(courier.WorkerFailed):
            list(watched_stream)


def test_a_server_that_sends_without_credit_breaks_its_stream(connect, unix_address) -> None:
    with server_of_items(unix_address, 10 * WINDOW_ITEMS):
        stream = connect(unix_address).rows()

        with pytest.raises(courier.StreamBroken):
            list(stream)
