"""The record that each run leaves: a small file of plain data, for those who look from outside.

<runtime directory>/run.json     who runs now; goes with the run
<log directory>/run.json         whose logs these are; stays with them
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launchpad.launch import bases

if TYPE_CHECKING:
    from launchpad.launch.plan import LaunchPlan
    from launchpad.launch.run_directory import RunDirectory

NAME = "run.json"


@dataclass(frozen=True)
class RunRecord:
    """What is written down of a run.

    Attributes:
      began: When, in seconds since 1970.
      workers: Name → group, of those in the plan.
      host: Where its launcher is, for one that was left in a cluster; else empty: here.
      gpus: Name → the GPUs that it was given, of those that were given any.
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

    @property
    def lives(self) -> bool:
        """Whether the run has not ended."""
        return bases.is_held(Path(self.runtime))

    def named(self, label: str) -> list[str]:
        """The workers of a group, or the one with this name."""
        return [worker for worker, group in self.workers.items() if label in (worker, group)]


def write(run: RunDirectory, plan: LaunchPlan) -> None:
    """Leaves the record of a run; where the disk is full it has none, and runs all the same."""
    text = json.dumps(asdict(of(run, plan)))
    for directory in (run.logs, run.runtime):
        with contextlib.suppress(OSError):
            (directory / NAME).write_text(text)


def of(run: RunDirectory, plan: LaunchPlan) -> RunRecord:
    """The record of a run of this process that begins now."""
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
    )


def left_behind(run: RunDirectory, plan: LaunchPlan) -> dict[str, Any]:
    """The same as plain data, for those who look from another host."""
    return {**asdict(of(run, plan)), "host": socket.gethostname()}


def living() -> list[RunRecord]:
    """The runs of this user that have not ended, the oldest first."""
    found = {r.run_id: r for base in bases.runtime_bases() for r in _records_in(base)}
    return sorted((r for r in found.values() if r.lives), key=lambda r: r.began)


def ended() -> list[RunRecord]:
    """The runs of this user that have ended and whose logs are still there, the oldest first."""
    return sorted((r for r in _records_in(bases.log_base()) if not r.lives), key=lambda r: r.began)


def read(directory: Path) -> RunRecord | None:
    """The record in a directory; None where there is none, or only half of one."""
    try:
        return RunRecord(**json.loads((directory / NAME).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def _records_in(base: Path) -> Iterator[RunRecord]:
    try:
        directories = [entry for entry in base.iterdir() if bases.is_private(entry)]
    except OSError:
        return
    for directory in directories:
        record = read(directory)
        if record is not None:
            yield record
