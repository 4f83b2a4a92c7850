"""The buttons that change a program. They are on a page only with `launchpad view --control`."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import run as threads
from nicegui import ui

from launchpad.courier import CourierError
from launchpad.errors import LaunchpadError
from launchpad.view.watched_run import WatchedRun


def add_restart(run: WatchedRun, worker: str) -> None:
    """Restarts a worker."""
    _add("restart", f"Restart {worker}?", lambda: run.client().restart(worker))


def add_stop(run: WatchedRun) -> None:
    """Stops the program, in good order."""
    _add("stop", f"Stop {run.record.program}?", lambda: run.client().stop(False))


def _add(name: str, question: str, do: Callable[[], object]) -> None:
    """A button, and one more that has to be pressed, too."""
    with ui.dialog() as dialog, ui.card():
        ui.label(question)
        ui.button(name, on_click=lambda: dialog.submit(True)).props(f"no-caps id=do-{name}")

    async def ask() -> None:
        if await dialog:
            failed = await threads.io_bound(_failure_of, do)
            if failed:
                ui.notify(failed, type="negative")

    ui.button(f"{name} …", on_click=ask).props(f"outline dense no-caps id=ask-{name}")


def _failure_of(do: Callable[[], object]) -> str:
    try:
        do()
    except (CourierError, LaunchpadError, AttributeError) as error:
        return str(error)
    return ""
