"""Who gets the page of `launchpad view`: this user, with the token, by its own name; no one else."""

from __future__ import annotations

import contextlib
import http.client
from urllib.parse import urlsplit

import psutil
import pytest

from tests.helpers import other_user
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
        self.opening, self.port = urlsplit(url), urlsplit(url).port

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


@needs_root
@pytest.mark.slow
def test_another_user_of_this_machine_gets_nothing_even_with_the_cookie() -> None:
    def ask(client: Client, cookie: str) -> None:
        answer = client.get("/", cookie=cookie)[:2]
        assert answer == (403, "refused: this page belongs to another user\n")

    with pages.served() as url:
        client = Client(url)
        cookie = client.open()[2]

        other_user.does(ask, client, cookie)

        assert client.get("/", cookie=cookie)[0] == 200
