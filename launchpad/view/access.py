"""Access control of the pages. Only the user whose programs they show gets in, with a one-time token.

    launchpad view ── prints http://127.0.0.1:8123/open?token=… ──▶ browser
    GET /open?token=…   with a token that was not used before   ──▶ sets a cookie, and redirects to the page
    all other requests  with the cookie                         ──▶ the page

A port of localhost is open to all users of the machine, and to pages of other sites in the user's own
browser. The server closes a connection of another user at once. On Linux, the kernel says which user's
process holds the other end of a connection. The server refuses each request, including websockets, unless

    1. its Host is this server, and not another name that leads here (DNS rebinding)
    2. its Origin, if it has one, is this server; a websocket must have an Origin
    3. it has the cookie, or has the token for the first time

A browser sends a cookie to all ports of a host, together with the cookies that other ports have set, even if
these are malformed. It hides this server's cookie from scripts (HttpOnly), and does not send it with requests
that come from other sites (SameSite=Strict).
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
import socket
import struct
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]
End = tuple[str, int | None]

OPEN = "/open"
_CONTENT = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data: blob:; font-src 'self' data:; frame-ancestors 'none'; form-action 'none'"
)
"""The Content-Security-Policy: the page loads nothing from other hosts, and no page may show it in a frame.
It allows eval because Vue compiles templates."""
_HEADERS = [
    (b"content-security-policy", _CONTENT.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]

# This is the request of inet_diag that `ss` sends for one socket (sock_diag(7)), and the places of the fields
# in the answer.
_SOCK_DIAG = 4
_BY_FAMILY = 20
_REQUEST = 1
_MESSAGE = struct.Struct("=IHHII")
_QUERY = struct.Struct("=BBBBI")
_ENDS = struct.Struct("!HH16s16s")
_REST = struct.Struct("=III")
_STATE = struct.Struct("=xB")
_UID = struct.Struct("=I")
# The uid comes after the state, the ends, a timer and two queues.
_UID_AT = 4 + _ENDS.size + _REST.size + 3 * 4
_ANY = 0xFFFFFFFF

_ESTABLISHED = 1
"""The state of an open connection. In other states, a process may no longer hold the socket, and the kernel
may report uid 0, which is root's."""


class AccessControl:
    """An ASGI application in front of another one. It refuses some requests, and passes on the others.

    Args:
        app: The protected application.
        port: The port of 127.0.0.1 that serves it.
        start: The path that a browser with the token is redirected to.
    """

    def __init__(self, app: App, port: int, start: str = "/") -> None:
        self._app = app
        self._port = port
        self._start = start
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self._cookie = f"launchpad-view-{port}"
        self._token = secrets.token_urlsafe(32)
        self._session = secrets.token_urlsafe(32)

    @property
    def url(self) -> str:
        """The address that opens the page. It works only once."""
        return f"http://127.0.0.1:{self._port}{OPEN}?token={self._token}"

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request, or one websocket."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        refusal = self._refusal(scope, headers)
        if refusal:
            await _refuse(scope, send, refusal)
        elif scope["path"] == OPEN and scope["type"] == "http":
            await self._open(scope, headers, send)
        elif not self._has_cookie(headers):
            await _refuse(
                scope, send, "this page opens with the address that `launchpad view` prints"
            )
        else:
            await self._app(scope, receive, _with_headers(send))

    def _refusal(self, scope: Message, headers: dict[str, str]) -> str:
        """Return the reason to refuse a request even if it has the cookie. Empty if there is no reason."""
        if headers.get("host") not in self._hosts:
            return (
                f"it is reached as 127.0.0.1:{self._port} only. From another machine:"
                f" ssh -L {self._port}:127.0.0.1:{self._port} …"
            )
        origin = headers.get("origin")
        may_lack_it = scope.get("method") in ("GET", "HEAD")
        if origin is None and may_lack_it:
            return ""
        is_own = origin is not None and origin.removeprefix("http://") == headers["host"]
        return "" if is_own else "another site may not use this page"

    def _has_cookie(self, headers: dict[str, str]) -> bool:
        # Don't use http.cookies, which gives up at the first malformed cookie.
        pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
        sessions = [value for name, _, value in pairs if name == self._cookie]
        return any(hmac.compare_digest(s.encode(), self._session.encode()) for s in sessions)

    async def _open(self, scope: Message, headers: dict[str, str], send: Send) -> None:
        """Exchange the token for a cookie."""
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        is_right = bool(self._token) and hmac.compare_digest(token.encode(), self._token.encode())
        if not (is_right or self._has_cookie(headers)):
            why = "the token is not right, or was used before: `launchpad view` prints another one"
            await _refuse(scope, send, why)
            return
        answer = [(b"location", self._start.encode()), (b"cache-control", b"no-store"), *_HEADERS]
        if is_right:
            self._token = ""
            cookie = f"{self._cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict"
            answer.append((b"set-cookie", cookie.encode()))
        await send({"type": "http.response.start", "status": 303, "headers": answer})
        await send({"type": "http.response.body", "body": b""})


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *_HEADERS]
        await send(message)

    return sent


async def _refuse(scope: Message, send: Send, why: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": ""})
        return
    body = f"refused: {why}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *_HEADERS]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def is_of_this_user(client: End | None, server: End | None) -> bool:
    """Return True if this user or root holds the client's end, or if the system is not Linux.

    Args:
        client, server: The two ends of the connection, with IPv4 addresses.
    """
    if not sys.platform.startswith("linux"):
        return True
    if client is None or server is None or client[1] is None or server[1] is None:
        return False
    ends = (client[0], client[1]), (server[0], server[1])
    try:
        owner = _owner_by_netlink(*ends)
    except OSError:
        # There is no netlink in some sandboxes.
        owner = _owner_by_proc(*ends)
    return owner in (os.getuid(), 0)


def _owner_by_netlink(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Ask the kernel for one socket. The time that this takes doesn't depend on the number of sockets."""
    addresses = (ipaddress.IPv4Address(host).packed for host in (client[0], server[0]))
    query = (
        _QUERY.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ANY)
        + _ENDS.pack(client[1], server[1], *addresses)
        + _REST.pack(0, _ANY, _ANY)
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        size = _MESSAGE.size + len(query)
        kernel.send(_MESSAGE.pack(size, _BY_FAMILY, _REQUEST, 0, 0) + query)
        answer = kernel.recv(4096)
    # The kernel has no such socket.
    if _MESSAGE.unpack_from(answer)[1] != _BY_FAMILY:
        return None
    (state,) = _STATE.unpack_from(answer, _MESSAGE.size)
    (uid,) = _UID.unpack_from(answer, _MESSAGE.size + _UID_AT)
    return int(uid) if state == _ESTABLISHED else None


def _owner_by_proc(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Look up the socket in the kernel's list of all sockets. See proc(5)."""
    ends = [_in_hexadecimal(client), _in_hexadecimal(server)]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, _, _, _, uid, *_ = line.split()
        if [local, remote] == ends and int(state, 16) == _ESTABLISHED:
            return int(uid)
    return None


def _in_hexadecimal(end: tuple[str, int]) -> str:
    """Format an end as the kernel does: `0100007F:1F90` for 127.0.0.1:8080."""
    host, port = end
    (number,) = struct.unpack("=I", ipaddress.IPv4Address(host).packed)
    return f"{number:08X}:{port:04X}"
