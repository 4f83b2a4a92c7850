"""Which run is meant."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from launchpad.courier import Client, CourierError
from launchpad.launch import control, record
from launchpad.launch.record import RunRecord


class CommandError(Exception):
    """A command cannot be done; the text says why, and what to do."""


def living(wanted: str | None) -> RunRecord:
    """The run that is meant, among those that have not ended.

    Raises:
      CommandError: there is none, or more than one.
    """
    runs = record.living()
    if not runs:
        raise CommandError("no program of yours runs on this machine now")
    return only(matching(runs, wanted), wanted, runs)


def living_with_label(wanted: str | None, label: str | None) -> tuple[RunRecord, str | None]:
    """The run and the label that are meant by `[RUN] [LABEL]`: one word alone may be either."""
    runs = record.living()
    if wanted is not None and label is None and len(runs) == 1 and not matching(runs, wanted):
        return runs[0], wanted
    return living(wanted), label


def matching(runs: Sequence[RunRecord], wanted: str | None) -> list[RunRecord]:
    """Those that a word on the command line can mean; all for None."""
    if wanted is None:
        return list(runs)
    exact = [r for r in runs if wanted in (r.run_id, r.program, str(r.pid))]
    return exact or [r for r in runs if r.run_id.startswith(wanted)]


def only(
    found: Sequence[RunRecord], wanted: str | None, all_runs: Sequence[RunRecord]
) -> RunRecord:
    """The one that was found.

    Raises:
      CommandError: none, or more than one; it lists those that there are.
    """
    if len(found) == 1:
        return found[0]
    if found:
        what = "several programs run" if wanted is None else f"several runs are called {wanted!r}"
        raise CommandError(f"{what}; name one of them:{_listed(found)}")
    raise CommandError(f"no run is called {wanted!r}; there are:{_listed(all_runs)}")


def workers_of(run: RunRecord, label: str | None) -> list[str]:
    """The workers of a group, or the one of that name; all for None.

    Raises:
      CommandError: there is no such group or worker.
    """
    if label is None:
        return list(run.workers)
    found = run.named(label)
    if not found:
        groups = ", ".join(dict.fromkeys(run.workers.values()))
        raise CommandError(
            f"{run.run_id} has no group or worker {label!r}; its groups are {groups}"
        )
    return found


@contextlib.contextmanager
def connected(run: RunRecord) -> Iterator[Client[Any]]:
    """A client of the run's control endpoint.

    Raises:
      CommandError: it ends just now, or does not answer.
    """
    try:
        with control.connected(Path(run.runtime)) as client:
            yield client
    except (OSError, CourierError) as error:
        raise CommandError(
            f"{run.run_id} does not answer: {error}. If that stays so, look at its launcher: pid {run.pid}"
        ) from error


def _listed(runs: Sequence[RunRecord]) -> str:
    return "".join(f"\n  {run.run_id}  ({run.program}, pid {run.pid})" for run in runs)
