"""A run as the pages know it, while it answers and while it does not."""

from __future__ import annotations

import contextlib
import fcntl
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from launchpad.courier import CourierError
from launchpad.errors import LaunchError
from launchpad.launch.rundir import history, locations
from launchpad.launch.rundir.history import AttemptRecord, RunHistory
from launchpad.launch.rundir.record import RunRecord, WorkerStatus
from launchpad.outcome import FAILED, Outcome
from launchpad.view.watched_run import WatchedRun
from tests.waiting import until


class Client:
    """Of a control endpoint that answers only every second question."""

    def __init__(self) -> None:
        self.asked = 0

    def status(self) -> list[dict[str, Any]]:
        self.asked += 1
        if self.asked % 2 == 0:
            raise CourierError("no answer within 10 s")
        return [asdict(WorkerStatus("actor-0", "actor", "running", self.asked, "", ""))]

    def metrics(self, within_s: float) -> None:
        raise LaunchError("there are none")


@pytest.mark.slow
def test_a_silent_run_is_asked_again_until_its_launcher_has_ended(tmp_path: Path) -> None:
    place = str(tmp_path)
    record = RunRecord("demo-1", "demo", "local_mp", 1, 0.0, place, place, {"actor-0": "actor"})
    client = Client()
    run = WatchedRun(record, lambda _: contextlib.nullcontext(client))
    outcome = Outcome("actor-0", FAILED, cause="x")
    ended = AttemptRecord("actor-0", 7, 1.0, ended=2.0, outcome=outcome)

    def seen(attempt: int) -> WorkerStatus | None:
        row = run.look.workers[0] if run.look is not None else None
        return row if row is not None and row.attempt >= attempt else None

    with open(tmp_path / locations.LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        run.start()
        until(lambda: seen(attempt=3))
        assert not run.has_ended
        assert run.why_unseen == "no answer within 10 s"
        history.write(tmp_path, RunHistory("demo", (ended,), (), 2.0))
    until(lambda: run.has_ended)
    last = until(lambda: seen(attempt=7))
    assert (last.state, last.cause) == ("failed", "x")
    run.close()
