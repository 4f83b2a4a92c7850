"""The page of time lines: the attempts of workers, and what they call and answer in two seconds."""

from __future__ import annotations

import io
import time
from collections.abc import Callable

from nicegui import run as threads
from nicegui import ui

from launchpad.courier import CourierError
from launchpad.errors import LaunchpadError
from launchpad.launch.rundir.history import RunHistory
from launchpad.view import time_line
from launchpad.view.pages import control, frame
from launchpad.view.watched_run import WatchedRun

_RECORDED_S = 2.0
_GROW_S = 5.0
"""So often the bars of attempts that go on are drawn again, longer."""


def show(run: WatchedRun) -> None:
    """Builds the page."""
    with frame.head(run, f"{run.record.program}: time lines"):
        control.add_stop(run)
    frame.section("attempts")
    attempts = frame.markup().props("id=attempts")
    _add_calls(run)

    async def draw() -> None:
        history = await threads.io_bound(run.history) or RunHistory(run.record.program)
        if not history.attempts:
            attempts.content = "nothing is known of its attempts"
            return
        line = time_line.of_attempts(history, time.time(), has_ended=run.has_ended)
        attempts.content = line.markup("attempts-line", _page_of(run))

    frame.on_change(
        lambda: (run.states_version, run.has_ended or time.monotonic() // _GROW_S), draw
    )


def _page_of(run: WatchedRun) -> Callable[[str], str]:
    return lambda worker: frame.path_of(run.record.run_id, "worker", worker)


def _add_calls(run: WatchedRun) -> None:
    """A button that records, and what it has recorded: as a picture, and as a file for Perfetto."""
    frame.section("calls")
    with ui.element("div").classes("bar"):
        style = "outline dense no-caps"
        record = ui.button(f"record {_RECORDED_S:g} s").props(f"{style} id=record").classes("small")
        save = ui.button("file for Perfetto").props(f"{style} id=save").classes("small")
        save.set_visibility(False)
        about = ui.label("some of the calls are recorded; a busy program is a few percent slower")
        about.classes("quiet")
    told = frame.shown_text().props("id=told")
    calls = frame.markup().props("id=calls")
    saved = ""

    def trace() -> tuple[str, str, str]:
        """What is there, the picture, and the file."""
        found, file = run.trace(_RECORDED_S), io.StringIO()
        found.write(file)
        picture = time_line.of_calls(found).markup("calls-line", _page_of(run))
        return f"{found}", picture, file.getvalue()

    async def ask() -> None:
        nonlocal saved
        record.disable()
        about.text = f"recording for {_RECORDED_S:g} s …"
        try:
            recorded = await threads.io_bound(trace)
            if recorded is not None:  # the view does not end meanwhile
                told.text, calls.content, saved = recorded
                about.text = "the file opens at https://ui.perfetto.dev, which sends it nowhere"
                save.set_visibility(True)
        except (CourierError, LaunchpadError, OSError) as error:
            about.text = f"{error}"
        record.enable()

    record.on_click(ask)
    name = f"trace-{run.record.run_id}.json"
    save.on_click(lambda: ui.download.content(saved, name, "application/json"))

    async def end() -> None:
        record.set_visibility(not run.has_ended)

    frame.on_change(lambda: run.has_ended, end)
