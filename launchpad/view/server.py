"""The server of the browser's pages, on a port of localhost.

Any user of this host can connect to the port. The server closes a connection of another user at once, before
it reads anything. It closes a connection of this user if a request doesn't come within some seconds, or if
the head of a request is too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any, ClassVar

import uvicorn
from fastapi import FastAPI
from nicegui import ui
from uvicorn.protocols.http.h11_impl import H11Protocol

from launchpad.view.access import AccessControl, is_of_this_user
from launchpad.view.pages import failure, program, runs, time_lines, worker
from launchpad.view.pages.runs import RunList

_HOST = "127.0.0.1"
_END_S = 1
_HEAD_S = 5.0
_HEAD_BYTES = 64 << 10
"""A connection's first head must arrive within `_HEAD_S` seconds. No head may have more bytes than this."""

_AT_ONCE = 16
_WAITING = 4096
_MOST_SILENT = 128
"""The most connections that have sent no request yet. When more come, the server closes the oldest one."""


def serve(run_list: RunList, start: str, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C.

    Args:
        start: The path that is shown first.
        port: The port of 127.0.0.1. 0 picks a free port.
        on_ready: A function that is called with the address that opens the page. The address works once.

    Raises:
        OSError: the port is taken.
    """
    with contextlib.closing(_Listener()) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_HOST, port))
        listener.listen(_WAITING)
        app = FastAPI(openapi_url=None)
        _add_pages(run_list)
        # Don't compress: on localhost, compressing takes longer than sending.
        ui.run_with(
            app,
            title="launchpad",
            tailwind=False,
            show_welcome_message=False,
            gzip_middleware_factory=None,
        )
        access = AccessControl(app, listener.getsockname()[1], start)
        config = uvicorn.Config(
            access,
            http=_Connection,
            loop="asyncio",
            backlog=_AT_ONCE,
            h11_max_incomplete_event_size=_HEAD_BYTES,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_END_S,
        )
        on_ready(access.url)
        _Server(config).run(sockets=[listener])


class _Listener(socket.socket):
    """A listening socket for this user. It closes other users' connections before they are served."""

    def accept(self) -> tuple[socket.socket, Any]:
        for _ in range(_AT_ONCE):
            connection, client = super().accept()
            if is_of_this_user(client, connection.getsockname()):
                return connection, client
            connection.close()
        # Let the server handle the requests that are here before it accepts more connections.
        raise BlockingIOError


class _Server(uvicorn.Server):
    """A server that accepts few connections in each turn of its loop, so that requests get their turn."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            # asyncio has one number for both the backlog and the connections accepted per turn, which must be
            # small. So set the backlog again.
            listener.listen(_WAITING)


class _Connection(H11Protocol):
    """A connection of this user's browser. h11 parses it: uvicorn's other parser does not limit heads."""

    # The connections that have sent no request yet, the oldest first.
    silent: ClassVar[dict[_Connection, None]] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.silent) >= _MOST_SILENT:
            oldest = next(iter(self.silent))
            del self.silent[oldest]
            oldest.transport.abort()
        self.silent[self] = None
        self.loop.call_later(_HEAD_S, self._close_if_silent)

    def handle_events(self) -> None:
        super().handle_events()
        # There is a scope once the client has sent a whole head.
        if self.scope is not None:
            self.silent.pop(self, None)

    def connection_lost(self, exc: Exception | None) -> None:
        self.silent.pop(self, None)
        super().connection_lost(exc)

    def _close_if_silent(self) -> None:
        if self in self.silent:
            self.transport.abort()


def _add_pages(run_list: RunList) -> None:
    def add(path: str, show: Callable[..., None]) -> None:
        def page(run_id: str, name: str = "") -> None:
            run = run_list.watched(run_id)
            if run is None:
                ui.label(f"no run of yours is called {run_id!r}")
            elif name:
                show(run, name)
            else:
                show(run)

        ui.page(path)(page)

    ui.page("/")(lambda: runs.show(run_list))
    add("/run/{run_id}", program.show)
    add("/run/{run_id}/worker/{name}", worker.show)
    add("/run/{run_id}/failure", failure.show)
    add("/run/{run_id}/time-lines", time_lines.show)
