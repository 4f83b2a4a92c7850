"""The record that each run leaves, as a small file of plain data, and the status of its workers, as rows.

<runtime directory>/run.json     says which programs run now; removed with the run
<log directory>/run.json         says which program these logs belong to; stays with the logs
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.security import private_directory
from launchpad.graph.picture import picture_of
from launchpad.launch.rundir import locations
from launchpad.outcome import FAILED, LOST

if TYPE_CHECKING:
    from launchpad.launch.plan import LaunchPlan

NAME = "run.json"
_COLUMNS = ("worker", "state", "attempt", "pid", "why its last attempt ended")
_MOST_ROWS = 50


class RunPlaces(Protocol):
    """The directories of a run: `RunDirectory`."""

    run_id: str
    runtime: Path
    logs: Path


@dataclass(frozen=True)
class RunRecord:
    """The record of a run.

    Attributes:
        began: When the run began, in seconds since 1970.
        workers: Name → group, of all workers in the plan.
        host: The host of its launcher if this is a detached run on a cluster; empty for this host.
        gpus: Name → GPUs, for the workers that have any.
        picture: What `Picture.from_dict` draws. It is empty for a detached run, whose cluster keeps only a
            small record; ask its launcher instead.
    """

    run_id: str
    program: str
    launch_type: str
    pid: int
    began: float
    runtime: str
    logs: str
    workers: Mapping[str, str]
    host: str = ""
    gpus: Mapping[str, Sequence[str]] = field(default_factory=dict)
    picture: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_running(self) -> bool:
        return locations.is_held(Path(self.runtime))

    def named(self, label: str) -> list[str]:
        """Return the names of the workers of a group, or of the one worker with this name."""
        return [worker for worker, group in self.workers.items() if label in (worker, group)]


@dataclass(frozen=True)
class WorkerStatus:
    """A row of `Running.status()`.

    `state` is pending, starting, running, stopping, restarting, or how the worker ended: succeeded, failed,
    stopped, lost. `cause` is why its last attempt ended, even if another attempt runs. `pid` is its own
    process; None for a thread, and while the worker has no process. `started_at` is when its last attempt
    began, in seconds of `time.monotonic()`. `gpus` are the GPUs that it was given, as written in
    CUDA_VISIBLE_DEVICES. `next_start` says when a restarting worker is started: `again in 12 s (5th within a
    minute)`. `debugged` says what a debugger does with the worker: `in pdb`, or why it failed and that it
    waits for `attach`.

    Example:
        for each in running.status():
            print(each.worker, each.state, each.attempt, each.cause)
    """

    worker: str
    label: str
    state: str
    attempt: int
    cause: str
    log_path: str
    pid: int | None = None
    started_at: float | None = None
    gpus: tuple[str, ...] = ()
    next_start: str = ""
    debugged: str = ""

    @property
    def shown_state(self) -> str:
        """The state with its details: `restarting, again in 12 s`, `running, in pdb`."""
        return ", ".join(filter(None, (self.state, self.next_start, self.debugged)))


def status_table(title: str, workers: Sequence[WorkerStatus]) -> str:
    """Return an HTML table for notebooks, failed workers first. Of many, only the first are shown."""
    ordered = sorted(workers, key=lambda row: row.state not in (FAILED, LOST))
    lines = [f"<table><caption>{escape(title)}</caption>", _html_row("th", *_COLUMNS)]
    for row in ordered[:_MOST_ROWS]:
        lines.append(
            _html_row("td", row.worker, row.shown_state, row.attempt, row.pid or "", row.cause)
        )
    if len(workers) > _MOST_ROWS:
        lines.append(_html_row("td", f"… and {len(workers) - _MOST_ROWS} more"))
    return "\n".join([*lines, "</table>"])


def _html_row(tag: str, *cells: object) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"


def write(run: RunPlaces, plan: LaunchPlan) -> None:
    """Write the record of a run. If the disk is full there is no record, and the program still runs."""
    text = json.dumps(asdict(of(run, plan)))
    for directory in (run.logs, run.runtime):
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            with open(os.open(directory / NAME, flags, 0o600), "w") as file:
                file.write(text)


def of(run: RunPlaces, plan: LaunchPlan) -> RunRecord:
    """Return the record of a run of this process that begins now."""
    return RunRecord(
        run_id=run.run_id,
        program=plan.program,
        launch_type=plan.launch_type,
        pid=os.getpid(),
        began=time.time(),
        runtime=str(run.runtime),
        logs=str(run.logs),
        workers={worker.name: worker.group for worker in plan.workers},
        gpus={worker.name: worker.gpus for worker in plan.workers if worker.gpus},
        picture=asdict(picture_of(plan)),
    )


def left_behind(run: RunPlaces, plan: LaunchPlan) -> dict[str, Any]:
    """Return the record as plain data, for other hosts."""
    return {**asdict(of(run, plan)), "host": socket.gethostname(), "picture": {}}


def running() -> list[RunRecord]:
    """Return the runs of this user that have not ended, the oldest first.

    Raises:
        LaunchError: another user could have put records where they are looked for.
    """
    by_id = {r.run_id: r for base in locations.private_runtime_bases() for r in _records_in(base)}
    return sorted((r for r in by_id.values() if r.is_running), key=lambda r: r.began)


def ended() -> list[RunRecord]:
    """Return the runs of this user that have ended and still have logs, the oldest first.

    Raises:
        LaunchError: another user could have put records where they are looked for.
    """
    try:
        os.close(locations.open_log_base())
    except FileNotFoundError:
        return []
    return sorted(
        (r for r in _records_in(locations.log_base()) if not r.is_running), key=lambda r: r.began
    )


def read(directory: Path) -> RunRecord | None:
    """Return the record in a directory; None if the file is missing or incomplete."""
    try:
        return RunRecord(**json.loads((directory / NAME).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _records_in(base: Path) -> Iterator[RunRecord]:
    try:
        directories = list(base.iterdir())
    except OSError:
        return
    for directory in directories:
        try:
            os.close(private_directory.open_private(directory))
        except OSError:
            continue  # this is not the directory of a run
        record = read(directory)
        if record is not None:
            yield record
