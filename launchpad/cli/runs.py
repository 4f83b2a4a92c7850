"""The runs of this user. Commands use this module to list runs, to find one of them, and to connect to it."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from launchpad.cli.command import CommandError
from launchpad.courier import CourierError
from launchpad.errors import LaunchError
from launchpad.launch import registry
from launchpad.launch.detached import Detached
from launchpad.launch.rundir import control_server, record
from launchpad.launch.rundir.record import RunRecord

_END_S = 1.0
_PAUSE_S = 0.05
LOOK_S = 2.0
"""Seconds that workers may take to answer a request for their metrics."""

ALIVE = ("starting", "running", "stopping")
"""The states in which a worker has a process or a thread."""


def find(word: str | None) -> RunRecord:
    """Return the run that a word on the command line names. Consider only runs that have not ended.

    Raises:
        CommandError: no run matches, or several do.
    """
    runs = candidates(word)
    if not runs:
        raise CommandError("no program of yours runs on this machine now")
    return only(matching(runs, word), word, runs)


def find_also_ended(word: str | None) -> RunRecord:
    """Return the run that a word on the command line names. Prefer runs that have not ended.

    If only ended runs match, and `word` is None or the name of a program, return the last one.

    Raises:
        CommandError: no run matches, or several do.
    """
    running = candidates(word)
    matches = matching(running, word)
    if not matches:
        ended_runs = record.ended()
        if not ended_runs:
            raise CommandError(
                "no program of yours runs, and there are no logs of one that has ended"
            )
        matches = matching(ended_runs, word)
        if word is None or any(run.program == word for run in matches):
            matches = matches[-1:]
        running = [*ended_runs, *running]
    return only(matches, word, running)


def every_run() -> list[RunRecord]:
    """Return all runs of this user, the newest last. These include ended runs that have left logs."""
    local_runs = [*record.ended(), *record.running()]
    return sorted(local_runs + _detached_besides(local_runs), key=lambda run: run.began)


def candidates(word: str | None) -> list[RunRecord]:
    """Return the runs that have not ended, among which to search for the run that `word` names.

    These are the runs on this machine, and the detached runs. Clusters are queried only if `word` matches no
    run on this machine.
    """
    local_runs = record.running()
    if word is not None and matching(local_runs, word):
        return local_runs
    return local_runs + _detached_besides(local_runs)


def _detached_besides(local_runs: Sequence[RunRecord]) -> list[RunRecord]:
    ids = {run.run_id for run in local_runs}
    return [run.record for run_id, run in detached_runs().items() if run_id not in ids]


@functools.cache
def detached_runs() -> dict[str, Detached]:
    """Return the detached runs that have not ended, by run id."""
    warn = functools.partial(print, "launchpad:", file=sys.stderr)
    runs = {}
    for run in registry.detached(warn):
        try:
            if not run.has_ended():
                runs[run.run_id] = run
        except LaunchError as error:
            # Go on, because the other runs can still be shown.
            warn(f"{run.run_id}: {error}")
    return runs


def is_detached(run: RunRecord) -> bool:
    """Return True if, as far as this machine knows, the run's launcher is or was on a cluster."""
    return bool(run.host) and not run.is_running


def has_ended(run: RunRecord) -> bool:
    """Return True if the run has ended, or if it is detached and its cluster does not answer."""
    if not is_detached(run):
        return not run.is_running
    try:
        return detached_runs()[run.run_id].has_ended()
    except LaunchError:
        return True


def matching(runs: Sequence[RunRecord], word: str | None) -> list[RunRecord]:
    """Return the runs that a word on the command line matches. Without a word, return all runs."""
    if word is None:
        return list(runs)
    exact = [run for run in runs if word in (run.run_id, run.program, str(run.pid))]
    return exact or [run for run in runs if run.run_id.startswith(word)]


def only(
    matches: Sequence[RunRecord], word: str | None, all_runs: Sequence[RunRecord]
) -> RunRecord:
    """Return the only match, or raise a CommandError that lists the choices."""
    if len(matches) == 1:
        return matches[0]
    choices = "".join(
        f"\n  {run.run_id}  ({run.program}, pid {run.pid})" for run in matches or all_runs
    )
    if not matches:
        raise CommandError(f"no run is called {word!r}; there are:{choices}")
    problem = "several programs run" if word is None else f"several runs are called {word!r}"
    raise CommandError(f"{problem}; name one of them:{choices}")


def workers_of(run: RunRecord, label: str | None) -> list[str]:
    """Return the workers of a group, or the worker with this name. Without a label, return all workers.

    Raises:
        CommandError: there is no such group or worker.
    """
    if label is None:
        return list(run.workers)
    workers = run.named(label)
    if not workers:
        groups = ", ".join(dict.fromkeys(run.workers.values()))
        raise CommandError(
            f"{run.run_id} has no group or worker {label!r}; its groups are {groups}"
        )
    return workers


@contextlib.contextmanager
def connected(run: RunRecord) -> Iterator[Any]:
    """Connect to a run's control endpoint. For a detached run, yield an object with the same methods.

    Raises:
        CommandError: the run has just ended, or does not answer.
        LaunchError: the same, for a detached run.
    """
    if is_detached(run):
        detached = detached_runs()[run.run_id]
        client = SimpleNamespace(
            status=lambda: [asdict(row) for row in detached.status()],
            stop=lambda at_once: detached.stop(at_once=at_once),
            stacks=detached.stacks,
            metrics=detached.metrics,
            history=detached.history,
            logs=detached.logs,
            restart=detached.ask_to_restart,
            trace=detached.trace,
            picture=detached.picture,
        )
        # A timeout is not needed, because the client knows how long a trace takes.
        client.with_options = lambda timeout_s: client
        yield client
        return
    try:
        with control_server.connected(Path(run.runtime)) as client:
            yield client
    except (OSError, CourierError) as error:
        if _ends_soon(run):
            raise CommandError(f"{run.run_id} has ended in the meantime") from error
        raise CommandError(
            f"{run.run_id} does not answer: {error}. If that stays so, look at its launcher: pid {run.pid}"
        ) from error


def status_of(client: Any, run: RunRecord, worker: str) -> Mapping[str, Any]:
    """Return the status of one worker, or raise CommandError if no worker has that name."""
    rows: dict[str, Mapping[str, Any]] = {row["worker"]: row for row in client.status()}
    if worker not in rows:
        raise CommandError(f"{run.run_id} has no worker {worker!r}; it has {', '.join(rows)}")
    return rows[worker]


def _ends_soon(run: RunRecord) -> bool:
    """Return True if the run ends within a moment. Its control endpoint closes before its launcher ends."""
    deadline = time.monotonic() + _END_S
    while run.is_running:
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True
