"""Buttons that change what runs. A page has them, and the handlers behind them, only with `--control`."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import run as threads
from nicegui import ui

from launchpad.courier import CourierError
from launchpad.errors import LaunchpadError
from launchpad.view.pages import frame
from launchpad.view.watched_run import WatchedRun


def add_stop(run: WatchedRun) -> None:
    """A button that stops the program, after a second question; nothing where the page is read-only."""
    if not run.may_control:
        return
    record = run.record
    with ui.dialog() as question, ui.card():
        ui.label(f"Stop {record.program}?").classes("section")
        ui.label(f"{record.run_id} is asked to end, as one Ctrl-C does.")
        with ui.row():
            yes = ui.button("stop", color="negative", on_click=lambda: question.submit(True))
            yes.props("dense no-caps unelevated id=stop-now").classes("small")
            no = ui.button("leave it running", on_click=lambda: question.submit(False))
            no.props("dense no-caps flat")

    async def ask() -> None:
        if await question:
            await _send(run.stop, f"stopping {record.program} …")

    _add_button(run, "stop the program", "stop", ask, "push")


def add_restart(run: WatchedRun, worker: str) -> None:
    """A button that restarts a worker; nothing where the page is read-only, or that is not possible."""
    if not run.may_control or run.is_remote or worker not in run.record.workers:
        return

    async def restart() -> None:
        await _send(lambda: run.restart(worker), f"restarting {worker} …")

    _add_button(run, "restart", "restart", restart)


def _add_button(
    run: WatchedRun, text: str, name: str, act: Callable[[], object], css: str = ""
) -> None:
    """A button, as long as the program runs."""
    button = ui.button(text, on_click=act, color="negative")
    button.props(f"outline dense no-caps id={name}").classes(f"small {css}")

    async def hide() -> None:
        button.set_visibility(not run.has_ended)

    frame.on_change(lambda: run.has_ended, hide)


async def _send(request: Callable[[], None], doing: str) -> None:
    try:
        await threads.io_bound(request)
        ui.notify(doing)
    except (CourierError, LaunchpadError, OSError) as error:
        ui.notify(f"{error}", type="negative", multi_line=True)
