"""The page of time lines: the attempts of workers, and what they call and answer in two seconds."""

from __future__ import annotations

import io
import time
from functools import partial

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
"""So often the bars of attempts that go on are drawn again, longer."""


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
    """Add a button that records, and what it has recorded: as a picture, and as a file for Perfetto."""
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

    def trace() -> tuple[str, str, str]:
        """Record; return how much there is, the picture, and the file."""
        recorded = run.trace(_RECORDED_S)
        file = io.StringIO()
        recorded.write(file)
        line = time_line.of_calls(recorded)
        picture = line.markup("calls-line", partial(frame.path_of_worker, run))
        return f"{recorded}", picture, file.getvalue()

    async def ask() -> None:
        nonlocal saved
        record.disable()
        about.text = f"recording for {_RECORDED_S:g} s …"
        try:
            recorded = await threads.io_bound(trace)
            if recorded is not None:  # the view does not end meanwhile
                summary.text, calls.content, saved = recorded
                about.text = "the file opens at https://ui.perfetto.dev, which sends it nowhere"
                save.set_visibility(True)
        except (CourierError, LaunchpadError, OSError) as error:
            about.text = f"{error}"
        record.enable()

    record.on_click(ask)
    name = f"trace-{run.record.run_id}.json"
    save.on_click(lambda: ui.download.content(saved, name, "application/json"))
    frame.show_while_it_runs(run, record)
