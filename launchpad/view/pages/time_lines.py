"""The page of time lines: the workers' attempts, and a recording of two seconds of their calls."""

from __future__ import annotations

import io
import time
from functools import partial
from typing import NamedTuple

from nicegui import run as threads
from nicegui import ui

from launchpad.courier import CourierError
from launchpad.errors import LaunchpadError
from launchpad.launch.rundir.history import RunHistory
from launchpad.view import time_line
from launchpad.view.pages import frame
from launchpad.view.watched_run import WatchedRun

_RECORDED_S = 2.0
_GROW_S = 5.0
"""How often, in seconds, the page redraws the bars of running attempts, because they have become longer."""


class _Recording(NamedTuple):
    """A recording of calls: a line about its size, its picture as HTML, and the text of Perfetto's file."""

    summary: str
    picture: str
    file: str


def show(run: WatchedRun) -> None:
    """Build the page."""
    with frame.head(run, f"{run.record.program}: time lines"):
        frame.add_stop(run)
    frame.section("attempts")
    attempts = frame.markup().props("id=attempts")
    _add_calls(run)

    async def draw() -> None:
        history = await threads.io_bound(run.history) or RunHistory(run.record.program)
        if not history.attempts:
            attempts.content = "nothing is known of its attempts"
            return
        line = time_line.of_attempts(history, time.time(), has_ended=run.has_ended)
        attempts.content = line.markup("attempts-line", partial(frame.path_of_worker, run))

    frame.on_change(
        lambda: (run.states_version, run.has_ended or time.monotonic() // _GROW_S), draw
    )


def _add_calls(run: WatchedRun) -> None:
    """Add a button that records calls, a picture of the recording, and a button to save it for Perfetto."""
    frame.section("calls")
    with ui.element("div").classes("bar"):
        record = frame.button(f"record {_RECORDED_S:g} s", "record")
        save = frame.button("file for Perfetto", "save")
        save.set_visibility(False)
        about = ui.label("some of the calls are recorded; a busy program is a few percent slower")
        about.classes("quiet")
    summary = frame.shown_text().props("id=told")
    calls = frame.markup().props("id=calls")
    saved = ""

    def trace() -> _Recording:
        """Record calls, and return the recording."""
        recorded = run.trace(_RECORDED_S)
        file = io.StringIO()
        recorded.write(file)
        line = time_line.of_calls(recorded)
        picture = line.markup("calls-line", partial(frame.path_of_worker, run))
        return _Recording(f"{recorded}", picture, file.getvalue())

    async def ask() -> None:
        nonlocal saved
        record.disable()
        about.text = f"recording for {_RECORDED_S:g} s …"
        try:
            recording = await threads.io_bound(trace)
            # The recording is None if the view ends while the thread records.
            if recording is not None:
                summary.text = recording.summary
                calls.content = recording.picture
                saved = recording.file
                about.text = "the file opens at https://ui.perfetto.dev, which sends it nowhere"
                save.set_visibility(True)
        except (CourierError, LaunchpadError, OSError) as error:
            about.text = f"{error}"
        record.enable()

    record.on_click(ask)
    name = f"trace-{run.record.run_id}.json"
    save.on_click(lambda: ui.download.content(saved, name, "application/json"))
    frame.show_while_it_runs(run, record)
