"""Clients of a server that moves: it comes back at another address, or nobody knows yet where it is."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launchpad import courier
from launchpad.courier.client import reader
from launchpad.courier.shm import segments
from tests.courier.conftest import CREDENTIALS, awaited, in_background, kill, reserve_port
from tests.waiting import until

LARGE = np.arange(1 << 20, dtype=np.uint8)


class Board:
    """Where a server is, as its clients are told: at `address` from when that is set."""

    def __init__(self, address: str = "") -> None:
        self.address = address
        self.was_asked = threading.Event()

    def __call__(self) -> str:
        self.was_asked.set()
        if isinstance(self.address, Exception):
            raise self.address
        return self.address


@dataclass(frozen=True)
class WrittenDown:
    """The same, for other processes too."""

    path: Path

    def __call__(self) -> str:
        return self.path.read_text() if self.path.exists() else ""


async def only_async(stream: Any) -> Any:
    (item,) = [item async for item in stream]
    return item


# Ways to ask a server for its process, and one of this process for its name.
ASK: dict[str, Callable[[Any], Any]] = {
    "call": lambda client: client.pid(),
    "future": lambda client: client.futures.pid().result(20),
    "stream": lambda client: list(client.pids()).pop(),
    "aio": lambda client: asyncio.run(awaited(client.aio.pid())),
    "async stream": lambda client: asyncio.run(only_async(client.aio.pids())),
}
ASK_HERE = {**ASK, "large call": lambda client: client.of(LARGE)}


@pytest.fixture(params=["unix to unix", "tcp to tcp", "unix to tls", "tls to unix"])
def any_places(request: pytest.FixtureRequest, short_directory, keys) -> Iterator[tuple[str, ...]]:
    """Two addresses, of the same carrier or not."""
    if "tls" in request.param:
        keys("tcp:", b"", CREDENTIALS)
    with reserve_port() as one, reserve_port() as other:
        free = {
            "unix": iter([f"unix:{short_directory}/a", f"unix:{short_directory}/b"]),
            "tcp": iter([one, other]),
            "tls": iter([one, other]),
        }
        yield tuple(next(free[kind]) for kind in request.param.split(" to "))


@pytest.fixture
def places(short_directory: Path) -> tuple[str, str]:
    """Two addresses, for what does not depend on how they are reached."""
    return f"unix:{short_directory}/a", f"unix:{short_directory}/b"


@pytest.fixture
def serve_as(serve) -> Callable[..., courier.Server]:
    """Starts a server that has its name for its process."""

    def start(name: str, address: str, **methods: Callable[..., Any]) -> courier.Server:
        server: courier.Server = serve(
            address,
            name=name,
            pid=lambda: name,
            pids=lambda: iter([name]),
            of=lambda _: name,
            echo=lambda value: value,
            **methods,
        )
        return server

    return start


def n_calls(server: courier.Server) -> dict[str, int]:
    return {name: method.calls for name, method in server.stats().methods.items()}


def test_f28_the_next_call_goes_to_the_servers_new_place(spawn_server, connect, any_places) -> None:
    first = spawn_server(any_places[0])
    board = Board(any_places[0])
    clients = {kind: connect(board, call_timeout=20) for kind in ASK}
    before = {ask(clients[kind]) for kind, ask in ASK.items()}

    kill(first, any_places[0])
    second = spawn_server(any_places[1])
    board.address = any_places[1]
    after = {ask(clients[kind]) for kind, ask in ASK.items()}

    assert (before, after) == ({first.pid}, {second.pid})
    assert clients["call"].address == any_places[1]


def test_f28_calls_in_flight_to_a_dead_server_name_its_place(spawn_server, connect, places) -> None:
    process = spawn_server(places[0])
    board = Board(places[0])
    client = connect(board)
    future = client.futures.hang()
    called = in_background(client.hang)
    until(lambda: client.n_hanging() >= 2)

    board.address = places[1]
    assert client.address == places[1]
    process.kill()

    for error in (future.exception(10), called.exception(10)):
        assert type(error) is courier.OutcomeUnknown
        assert f"connection to victim ({places[0]}) ended" in str(error)
        assert error.address == places[0]


def test_f28_calls_wait_until_the_next_place_is_known(spawn_server, connect, places) -> None:
    """Also one that was in flight, if it may run twice."""
    first = spawn_server(places[0])
    board = Board(places[0])
    client = connect(board, call_timeout=60, idempotent=["hang"])
    repeated = client.futures.hang()
    until(client.n_hanging)
    board.address = ""
    kill(first, places[0])
    board.was_asked.clear()

    called = in_background(client.pid)
    future = client.futures.pid()
    assert board.was_asked.wait(10)
    second = spawn_server(places[1])
    board.address = places[1]

    assert called.result(10) == future.result(10) == second.pid
    until(client.n_hanging)
    assert not repeated.done()


def test_on_restart_is_called_once_for_each_other_server(serve, serve_as, connect, places) -> None:
    first = serve(places[0], also_at=["tcp:127.0.0.1:0"], pid=lambda: "first")
    board = Board(first.addresses[0])
    client = connect(board, call_timeout=20)
    told: list[str] = []
    courier.on_restart(client, lambda: told.append(board.address))
    client.pid()

    board.address = first.addresses[1]
    client.pid()
    told_of_the_same_server = list(told)
    first.stop()
    serve_as("second", places[1])
    board.address = places[1]
    answers = {ask(client) for ask in ASK_HERE.values()}

    assert answers == {"second"}
    assert told_of_the_same_server == []
    assert told == [places[1]]


def test_f28_a_server_given_up_is_not_called(serve_as, connect, any_places, monkeypatch) -> None:
    monkeypatch.setattr(reader, "_IDLE_S", 60.0)  # it is not for want of calls that they are closed
    old = serve_as("old", any_places[0])
    board = Board(any_places[0])
    clients = {kind: connect(board, call_timeout=20) for kind in ASK_HERE}
    before = {ask(clients[kind]) for kind, ask in ASK_HERE.items() for _ in range(2)}
    n_before = n_calls(old)

    serve_as("new", any_places[1])
    board.address = any_places[1]
    after = {ask(clients[kind]) for kind, ask in ASK_HERE.items() for _ in range(2)}

    assert (before, after) == ({"old"}, {"new"})
    assert n_calls(old) == n_before
    until(lambda: old.stats().connections == 0)


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_is_in_flight_to_the_old_place_goes_on_there_until_the_client_is_closed(
    serve_as, connect, places, gate, is_closed
) -> None:
    old = serve_as("old", places[0], hang=lambda: gate.wait(20))
    board = Board(places[0])
    client = connect(board, call_timeout=20)
    hanging = client.futures.hang()
    assert gate.begun.wait(10)
    assert client.futures.pid().result(10) == "old"

    serve_as("new", places[1])
    board.address = places[1]
    answers = [client.futures.pid().result(10) for _ in range(3)]
    was_done = hanging.done()
    if is_closed:
        courier.close(client)
        assert isinstance(hanging.exception(0), courier.CourierError)
    else:
        gate.set()
        assert hanging.result(10) is True

    assert answers == ["new"] * 3
    assert not was_done
    assert n_calls(old)["pid"] == 1


def test_a_server_that_moves_while_we_connect_is_called_there(serve_as, connect, places) -> None:
    old = serve_as("old", places[0])
    serve_as("new", places[1])
    said = iter([places[0]])

    client = connect(lambda: next(said, places[1]), call_timeout=20)

    assert client.pid() == "new"
    assert "pid" not in n_calls(old)


def test_a_server_that_is_not_known_any_more_is_not_called(serve_as, connect, places) -> None:
    server = serve_as("lost", places[0])
    board = Board(places[0])
    client = connect(board, wait_for_ready=False)
    client.pid()
    client.futures.pid().result(10)

    board.address = ""

    with pytest.raises(courier.NotSent):
        client.pid()
    assert isinstance(client.futures.pid().exception(10), courier.NotSent)
    assert n_calls(server)["pid"] == 2


@pytest.mark.parametrize("kind", ASK_HERE)
def test_a_call_waits_until_the_place_is_known(serve_as, connect, unix_address, kind) -> None:
    board = Board()
    client = connect(board, call_timeout=20)
    called = in_background(ASK_HERE[kind], client)
    assert board.was_asked.wait(10)

    serve_as("found", unix_address)
    board.address = unix_address

    assert called.result(20) == "found"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"wait_for_ready": False}, courier.NotSent, r"\) is not up"),
        ({"call_timeout": 0.1}, courier.DeadlineExceeded, r"within 0\.1 s"),
        (
            {"failure_check": lambda: courier.WorkerFailed("exit code 3")},
            courier.WorkerFailed,
            "exit code 3",
        ),
    ],
)
def test_the_wait_for_a_server_that_is_nowhere_ends(connect, options, error, words) -> None:
    client = connect(Board(), name="learner-0", **options)
    future = client.futures.m()

    with pytest.raises(error, match=words) as caught:
        client.m()

    assert isinstance(future.exception(10), error)
    assert caught.value.address == client.address == ""
    if error is not courier.WorkerFailed:
        assert "learner-0 (its address is not known yet" in str(caught.value)


def test_memory_is_shared_where_a_place_is_unix(serve_as, connect, short_directory, keys) -> None:
    keys("tcp:", b"", CREDENTIALS)
    near = serve_as("near", f"unix:{short_directory}/s")
    far = serve_as("far", "tcp:127.0.0.1:0")
    board = Board()
    client = connect(board, call_timeout=20)
    shared = []

    for server in (near, far, near, far):
        board.address = server.address
        assert np.array_equal(client.echo(LARGE), LARGE)
        connections = client._channel.connections.shm_connections  # type: ignore[union-attr]
        shared.append(sum(each.shares_memory for each in connections))

    assert shared == ([1, 0, 1, 0] if segments.IS_SUPPORTED else [0, 0, 0, 0])


def test_each_place_is_shown_the_token_for_it(serve, connect, short_directory, keys) -> None:
    keys("unix:", b"near")
    keys("tcp:", b"far")
    near = serve(f"unix:{short_directory}/s", m=lambda: "near", token=b"near")
    far = serve("tcp:127.0.0.1:0", m=lambda: "far", token=b"far")
    board = Board(near.address)
    client = connect(board)
    answers = [client.m(), client.futures.m().result(10)]

    board.address = far.address
    answers += [client.m(), client.futures.m().result(10)]

    assert answers == ["near", "near", "far", "far"]


@pytest.mark.parametrize(
    ("said", "error", "text"),
    [
        ("inproc:x", ValueError, "'inproc:x'.*has to be at unix: or tcp:"),
        ("grpc:127.0.0.1:7077", ValueError, "'grpc:127.0.0.1:7077'.*has to be"),
        ("tcp:nowhere", ValueError, "tcp:HOST:PORT"),
        ("somewhere", ValueError, "has to be"),
        (None, TypeError, "returned None"),
        (LookupError("the table is gone"), LookupError, "the table is gone"),
    ],
)
def test_an_address_to_which_no_server_can_move_is_the_error_of_the_call(
    serve_as, connect, unix_address, said, error, text
) -> None:
    serve_as("server", unix_address)
    board = Board(unix_address)
    client = connect(board)
    client.pid()
    client.futures.pid().result(10)

    board.address = said

    with pytest.raises(error, match=text):
        client.pid()
    with pytest.raises(error, match=text):
        client.futures.pid().result(10)


def test_pickled_clients_and_ones_with_options_ask_too(serve_as, connect, places, tmp_path) -> None:
    where = WrittenDown(tmp_path / "where")
    client = connect(where, call_timeout=20, idempotent=["pid"])

    other = client.with_options(timeout_s=30)
    copy = pickle.loads(pickle.dumps(client))
    with copy:
        for name, address in zip(("first", "second"), places, strict=True):
            serve_as(name, address)
            where.path.write_text(address)
            assert [each.pid() for each in (copy, client, other)] == [name] * 3
            assert other.futures.pid().result(10) == name


def test_moving_clients_compare_by_what_they_ask(tmp_path) -> None:
    def client(name: str) -> courier.Client[Any]:
        return courier.Client(WrittenDown(tmp_path / name))

    assert client("a") == client("a")
    assert hash(client("a")) == hash(client("a"))
    assert client("a") != client("b")
    assert client("a") != courier.Client(f"unix:{tmp_path}/a")


def test_a_moving_client_shows_where_its_server_is_now(unix_address) -> None:
    board = Board()
    client = courier.Client[Any](board)
    before = repr(client)

    board.address = unix_address

    assert before == f"Client({board!r}, now at an unknown address)"
    assert repr(client) == f"Client({board!r}, now at {unix_address})"
    assert client.stats().address == client.address == unix_address
