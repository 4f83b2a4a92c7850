"""Who gets the page of `launchpad view`: this user, with the token, by its own name; no one else."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import psutil
import pytest

from launchpad.view import access
from tests.helpers import other_user, silent_strangers
from tests.helpers.other_user import needs_root
from tests.view import pages

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=websocket"


class Client:
    """A browser that sends what it is told to."""

    def __init__(self, url: str) -> None:
        self.opening = urlsplit(url)
        self.port = self.opening.port or 0

    def get(self, path: str, **headers: str) -> tuple[int, str, str]:
        """Status, text, and the cookie that is set."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request(
                "GET", path, headers={n.replace("_", "-"): v for n, v in headers.items()}
            )
            answer = connection.getresponse()
            text = "" if answer.status == 101 else answer.read().decode()
            return answer.status, text, (answer.getheader("set-cookie") or "").partition(";")[0]

    def open(self) -> tuple[int, str, str]:
        return self.get(f"{self.opening.path}?{self.opening.query}")


OPEN_FILES = 256


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Of a page that runs with this limit on open files, for all tests here that leave it as it is."""
    with pages.served(open_files=OPEN_FILES) as url:
        yield Client(url)


@pytest.fixture(scope="module")
def cookie(client: Client) -> str:
    return client.open()[2]


@pytest.mark.slow
def test_the_page_is_there_for_one_that_has_brought_the_token_and_no_other() -> None:
    with pages.served() as url:
        client = Client(url)

        assert client.get("/")[:2] == (
            403,
            "refused: this page opens with the address that `launchpad view` prints\n",
        )
        assert client.get("/open?token=wrong")[0] == 403
        status, _, cookie = client.open()
        assert status == 303
        assert client.get("/", cookie=cookie)[0] == 200
        again, why, no_cookie = client.open()
        assert (again, no_cookie) == (403, "")
        assert "was used before" in why
        assert client.get("/", cookie=f"{cookie}x")[0] == 403
        assert client.get(SOCKET, **UPGRADE)[0] == 403

        own, name = f"http://127.0.0.1:{client.port}", f"localhost:{client.port}"
        for other in ("example.org", f"example.org:{client.port}", "127.0.0.1:1"):
            assert client.get("/", cookie=cookie, host=other)[0] == 403
        assert client.get("/", cookie=cookie, host=name)[0] == 200
        for origin in ("http://127.0.0.1:1", "http://example.org", f"http://{name}", "null"):
            assert client.get("/", cookie=cookie, origin=origin)[0] == 403
            assert client.get(SOCKET, cookie=cookie, origin=origin, **UPGRADE)[0] == 403
        assert client.get(SOCKET, cookie=cookie, **UPGRADE)[0] == 403
        assert client.get(SOCKET, cookie=cookie, origin=own, **UPGRADE)[0] == 101

        listening = [
            c.laddr for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN
        ]
        assert [a.ip for a in listening if a.port == client.port] == ["127.0.0.1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "other",
    [
        'prefs={"theme":"dark"}',
        "a=b c",
        "name with spaces=1",
        "flag",
        "=",
        "a[0]=1; b@c=2",
        'quoted="unfinished',
        "launchpad-view-{port}=another",
    ],
)
def test_cookies_that_other_pages_of_localhost_have_set_do_not_shut_the_page(
    client: Client, cookie: str, other: str
) -> None:
    other = other.replace("{port}", str(client.port))

    for cookies in (f"{other}; {cookie}", f"{cookie}; {other}"):
        assert client.get("/", cookie=cookies)[0] == 200
    assert client.get("/", cookie=other)[0] == 403


@pytest.mark.slow
def test_a_head_that_does_not_end_is_refused_when_it_is_too_long(client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port), 30) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n")
        # More than the kernel keeps for a server that has not read it yet.
        with pytest.raises(ConnectionError):
            sock.sendall((b"X: " + b"a" * 1000 + b"\r\n") * 32_000)


@pytest.mark.slow
def test_silent_connections_do_not_shut_the_page(client: Client, cookie: str) -> None:
    with contextlib.ExitStack() as stack:
        where = ("127.0.0.1", client.port)
        silent = [
            stack.enter_context(socket.create_connection(where, 30)) for _ in range(OPEN_FILES)
        ]

        assert client.get("/", cookie=cookie)[0] == 200
        with contextlib.suppress(ConnectionError):
            assert silent[0].recv(1) == b""


@needs_root
@pytest.mark.slow
def test_another_user_of_this_machine_gets_nothing_even_with_the_cookie(
    client: Client, cookie: str
) -> None:
    def ask(client: Client, cookie: str) -> None:
        with pytest.raises(ConnectionError):
            client.get("/", cookie=cookie)
        with contextlib.ExitStack() as stack:
            for _ in range(OPEN_FILES):
                sock = stack.enter_context(socket.create_connection(("127.0.0.1", client.port), 30))
                with contextlib.suppress(ConnectionError):
                    assert sock.recv(1) == b""

    other_user.does(ask, client, cookie)

    assert client.get("/", cookie=cookie)[0] == 200


@pytest.mark.parametrize("has_netlink", [True, False])
def test_the_owner_of_a_connection_is_known_while_it_is_open(monkeypatch, has_netlink) -> None:
    if not has_netlink:
        monkeypatch.setattr(access, "_SOCK_DIAG", 1 << 20)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        with socket.create_connection(listening.getsockname()) as sock:
            client, server = sock.getsockname(), sock.getpeername()
            accepted, _ = listening.accept()
            with accepted:
                assert access.is_of_this_user(client, server)
                assert not access.is_of_this_user((client[0], 1), server)
                monkeypatch.setattr("os.getuid", lambda: 12345)
                is_of_root = os.geteuid() == 0
                assert access.is_of_this_user(client, server) == is_of_root
        assert not access.is_of_this_user(client, server)


@needs_root
@pytest.mark.endurance
def test_2000_silent_connections_of_another_user_for_a_minute_hold_up_no_page_for_a_second() -> (
    None
):
    with pages.served() as url:
        client = Client(url)
        cookie = client.open()[2]
        longest_s = 0.0

        with silent_strangers.at(f"tcp:127.0.0.1:{client.port}", 2000, other_user.UID):
            ends_at = time.monotonic() + 60
            while time.monotonic() < ends_at:
                began = time.monotonic()
                assert client.get("/", cookie=cookie)[0] == 200
                longest_s = max(longest_s, time.monotonic() - began)
                time.sleep(0.1)

    assert longest_s < 1
