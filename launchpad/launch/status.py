"""The status of a worker: what is known of it now, as a row."""

from __future__ import annotations

from dataclasses import dataclass

from launchpad.launch.run_directory import RunDirectory
from launchpad.launch.watched import State, Watched


@dataclass(frozen=True)
class WorkerStatus:
    """A row of `Running.status()`.

    `state` is pending, starting, running, stopping, restarting, or how it ended: succeeded, failed, stopped,
    lost. `cause` is why its last attempt ended, also when another one runs. `pid` is its own process, None
    while it has none, as always among threads. `started_at` is when its last attempt began, in seconds of
    `time.monotonic()`. `gpus` are the devices that it was given, as they stand in CUDA_VISIBLE_DEVICES.
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


def status_of(worker: Watched, run: RunDirectory) -> WorkerStatus:
    """The row of a worker."""
    return WorkerStatus(
        worker=worker.name,
        label=worker.plan.group,
        state=str(worker.outcome.kind if _has_ended(worker) and worker.outcome else worker.state),
        attempt=worker.attempt,
        cause=worker.outcome.cause if worker.outcome is not None else "",
        log_path=str(run.log(worker.name, max(1, worker.attempt))),
        pid=worker.pid or None,
        started_at=worker.started_at,
        gpus=worker.plan.gpus,
    )


def _has_ended(worker: Watched) -> bool:
    return worker.state is State.ENDED
