"""Connections that show no token: a process keeps a few of them, and serves its clients meanwhile."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from launchpad.courier.server import strangers
from launchpad.courier.transport import unix
from tests.courier.conftest import in_background, reach
from tests.waiting import until

SERVER = """{begin}
import contextlib, os, resource
from launchpad.courier.server.strangers import strangers
used = []
def use_up(n_left):
    while True:
        used.append(os.open("/dev/null", os.O_RDONLY))
        if used[-1] >= 64 - 1 - n_left:
            return
server = courier.Server("few", address={address!r})
server.bind("echo", lambda value: value)
server.bind("open_file", lambda: open("/dev/null").close())
server.bind("use_up", use_up)
server.bind("n_strangers", lambda: len(strangers))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
server.start()
print("up", flush=True)
server.join()
"""


@pytest.fixture
def silent() -> Iterator[list[socket.socket]]:
    """Connections of the test, closed after it."""
    with contextlib.ExitStack() as stack:
        sockets: list[socket.socket] = []
        stack.callback(lambda: [sock.close() for sock in sockets])
        yield sockets


def is_open(sock: socket.socket) -> bool:
    """Whether the server has not closed it, as far as is known here."""
    try:
        sock.setblocking(False)
        return bool(sock.recv(4096))
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_silent_connections_leave_descriptors_to_the_server_and_to_its_clients(
    spawn_server, connect, socket_address, silent
) -> None:
    spawn_server(socket_address, SERVER)
    old = connect(socket_address, call_timeout=20)
    old.echo(1)

    silent += [reach(socket_address) for _ in range(100)]
    until(lambda: sum(map(is_open, silent)) <= 16)
    old.open_file()
    new = connect(socket_address, call_timeout=20)

    assert new.echo(2) == 2
    assert 0 < new.n_strangers() <= 16


def test_silent_connections_leave_descriptors_to_a_server_of_grpc(
    spawn_server, connect, tcp_address, silent
) -> None:
    pytest.importorskip("grpc")
    address = tcp_address.replace("tcp:", "grpc:")
    spawn_server(address, SERVER)
    client = connect(address, call_timeout=20)
    client.echo(1)

    silent += [reach(tcp_address) for _ in range(100)]
    until(lambda: client.open_file() or not is_open(silent[0]))

    assert connect(address, call_timeout=20).echo(2) == 2


def test_the_last_descriptors_are_not_for_silent_connections(
    spawn_server, connect, socket_address, silent
) -> None:
    spawn_server(socket_address, SERVER)
    old = connect(socket_address, call_timeout=20)
    old.use_up(10)

    silent += [reach(socket_address) for _ in range(15)]
    until(lambda: sum(map(is_open, silent)) <= 10)
    old.open_file()

    assert connect(socket_address, call_timeout=20).echo(2) == 2


def test_a_herd_of_clients_is_served_though_only_few_may_be_without_a_token_at_once(
    serve, connect, socket_address, monkeypatch
) -> None:
    monkeypatch.setattr(strangers, "_FEWEST", 2)
    monkeypatch.setattr(strangers, "_MOST", 2)
    monkeypatch.setattr(strangers, "_GRACE_S", 10.0)
    serve(socket_address, echo=lambda value: value)
    answers: list[int] = []

    def call(number: int) -> None:
        answers.append(connect(socket_address, call_timeout=20).echo(number))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answers) == [*range(24)]
    assert len(strangers.strangers) == 0


def test_a_client_waits_for_room_in_the_backlog_of_a_unix_socket(
    short_directory: Path, silent: list[socket.socket]
) -> None:
    path = f"{short_directory}/s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(0)
        silent += [reach(f"unix:{path}")]
        with pytest.raises(BlockingIOError):
            unix.connect(f"unix:{path}", 0.05)

        connected = in_background(unix.connect, f"unix:{path}", 20.0)
        listening.accept()[0].close()

        silent.append(connected.result(20))
        with pytest.raises(OSError, match="another server already listens"):
            unix.UnixListener(f"unix:{path}")


def test_where_open_files_have_no_limit_there_is_one_for_strangers(monkeypatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)

    assert strangers.at_most() == strangers._MOST
    with socket.socket() as sock:
        assert not strangers.strangers.takes_reserve(sock)
