"""Finds the run that a command names, and connects to it."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from launchpad.courier import CourierError
from launchpad.errors import LaunchError
from launchpad.launch import registry
from launchpad.launch.detached import Detached
from launchpad.launch.rundir import control_server, record
from launchpad.launch.rundir.record import RunRecord

_END_S = 1.0
_PAUSE_S = 0.05
LOOK_S = 2.0
"""How long workers may take to answer a request for their numbers."""


class CommandError(Exception):
    """A command failed; the text gives the reason, and what to do."""


def find(wanted: str | None) -> RunRecord:
    """The run that is meant, among those that have not ended; CommandError if there is not just one."""
    runs = candidates(wanted)
    if not runs:
        raise CommandError("no program of yours runs on this machine now")
    return only(matching(runs, wanted), wanted, runs)


def candidates(wanted: str | None) -> list[RunRecord]:
    """The runs that have not ended and with which `wanted` is matched.

    Those on this machine, and the detached ones; a cluster is queried only if `wanted` matches none here.
    """
    here = record.running()
    if wanted is not None and matching(here, wanted):
        return here
    known = {run.run_id for run in here}
    return here + [each.record for run_id, each in detached_runs().items() if run_id not in known]


@functools.cache
def detached_runs() -> dict[str, Detached]:
    """Run id → the detached run, for those that have not ended."""
    warn = functools.partial(print, "launchpad:", file=sys.stderr)
    found = {}
    for each in registry.detached(warn):
        try:
            if not each.has_ended():
                found[each.run_id] = each
        except LaunchError as error:  # the others are shown all the same
            warn(f"{each.run_id}: {error}")
    return found


def is_detached(run: RunRecord) -> bool:
    """Whether its supervisor does not run on this machine, or not any more, as far as is known here."""
    return bool(run.host) and not run.is_running


def has_ended(run: RunRecord) -> bool:
    """Whether it has ended; on a cluster, as far as that is known there."""
    if not is_detached(run):
        return not run.is_running
    try:
        return detached_runs()[run.run_id].has_ended()
    except LaunchError:
        return True


def matching(runs: Sequence[RunRecord], wanted: str | None) -> list[RunRecord]:
    """The runs that a word on the command line matches; all for None."""
    if wanted is None:
        return list(runs)
    exact = [r for r in runs if wanted in (r.run_id, r.program, str(r.pid))]
    return exact or [r for r in runs if r.run_id.startswith(wanted)]


def only(
    found: Sequence[RunRecord], wanted: str | None, all_runs: Sequence[RunRecord]
) -> RunRecord:
    """The one that was found; else a CommandError, which lists those that there are."""
    if len(found) == 1:
        return found[0]
    listed = "".join(
        f"\n  {run.run_id}  ({run.program}, pid {run.pid})" for run in found or all_runs
    )
    if found:
        what = "several programs run" if wanted is None else f"several runs are called {wanted!r}"
        raise CommandError(f"{what}; name one of them:{listed}")
    raise CommandError(f"no run is called {wanted!r}; there are:{listed}")


def workers_of(run: RunRecord, label: str | None) -> list[str]:
    """The workers of a group, or the one of that name; all for None. CommandError if there is none."""
    if label is None:
        return list(run.workers)
    found = run.named(label)
    if not found:
        groups = ", ".join(dict.fromkeys(run.workers.values()))
        raise CommandError(
            f"{run.run_id} has no group or worker {label!r}; its groups are {groups}"
        )
    return found


def _ends_soon(run: RunRecord) -> bool:
    """True if it has ended within a moment: its control endpoint closes before its launcher has ended."""
    deadline = time.monotonic() + _END_S
    while run.is_running:
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True


@contextlib.contextmanager
def connected(run: RunRecord) -> Iterator[Any]:
    """A client of the run's control endpoint, or an object with the same methods for a detached run.

    CommandError, or LaunchError for a detached run: it ends just now, or does not answer.
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
        client.with_options = lambda timeout_s: client  # it knows how long a trace takes
        yield client
        return
    try:
        with control_server.connected(Path(run.runtime)) as client:
            yield client
    except (OSError, CourierError) as error:
        if _ends_soon(run):
            raise CommandError(f"{run.run_id} has ended meanwhile") from error
        raise CommandError(
            f"{run.run_id} does not answer: {error}. If that stays so, look at its launcher: pid {run.pid}"
        ) from error
