"""Serves the browser's pages on a port of localhost."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI
from nicegui import ui

from launchpad.view.access import AccessControl
from launchpad.view.pages import failure, program, runs, time_lines, worker
from launchpad.view.run_list import RunList

_HOST = "127.0.0.1"
_END_S = 1


def serve(run_list: RunList, start: str, port: int, on_ready: Callable[[str], None]) -> None:
    """Serves until Ctrl-C.

    Args:
        start: The path that is shown first.
        port: On which; 0: on a free one.
        on_ready: Called with the address that opens the page, once.

    Raises:
        OSError: the port is taken.
    """
    with contextlib.closing(socket.socket()) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((_HOST, port))
        listening.listen(128)
        app = FastAPI(openapi_url=None)
        _add_pages(run_list)
        # On localhost to compress takes longer than to send.
        ui.run_with(
            app,
            title="launchpad",
            tailwind=False,
            show_welcome_message=False,
            gzip_middleware_factory=None,
        )
        access = AccessControl(app, listening.getsockname()[1], start)
        config = uvicorn.Config(
            access,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_END_S,
        )
        on_ready(access.url)
        uvicorn.Server(config).run(sockets=[listening])


def _add_pages(run_list: RunList) -> None:
    def add(path: str, show: Callable[..., None]) -> None:
        def page(run_id: str, name: str = "") -> None:
            run = run_list.watched(run_id)
            if run is None:
                ui.label(f"no run of yours is called {run_id!r}")
            else:
                show(run, name) if name else show(run)

        ui.page(path)(page)

    ui.page("/")(lambda: runs.show(run_list))
    add("/run/{run_id}", program.show)
    add("/run/{run_id}/worker/{name}", worker.show)
    add("/run/{run_id}/failure", failure.show)
    add("/run/{run_id}/time-lines", time_lines.show)
