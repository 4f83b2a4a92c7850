"""Which run is meant."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from launchpad.courier import Client, CourierError
from launchpad.errors import LaunchError
from launchpad.launch import control, record, registry
from launchpad.launch.detached import Detached
from launchpad.launch.record import RunRecord

T = TypeVar("T")


class CommandError(Exception):
    """A command cannot be done; the text says why, and what to do."""


def living(wanted: str | None) -> RunRecord:
    """The run that is meant, among those that have not ended.

    Raises:
      CommandError: there is none, or more than one.
    """
    runs = candidates(wanted)
    if not runs:
        raise CommandError("no program of yours runs on this machine now")
    return only(matching(runs, wanted), wanted, runs)


def candidates(wanted: str | None) -> list[RunRecord]:
    """The runs among which the word is looked for: a cluster is asked only if it means none here."""
    here = record.living()
    return here if wanted is not None and matching(here, wanted) else all_living()


def living_with_label(wanted: str | None, label: str | None) -> tuple[RunRecord, str | None]:
    """The run and the label that are meant by `[RUN] [LABEL]`: one word alone may be either."""
    runs = candidates(wanted)
    if wanted is not None and label is None and len(runs) == 1 and not matching(runs, wanted):
        return runs[0], wanted
    return living(wanted), label


def all_living() -> list[RunRecord]:
    """The runs that have not ended: of this machine, and those left on a cluster that we know of."""
    here = record.living()
    known = {run.run_id for run in here}
    return here + [each.record for run_id, each in away().items() if run_id not in known]


@functools.cache
def away() -> dict[str, Detached]:
    """Run id → the program that was left on a cluster and has not ended."""
    found = registry.detached(lambda why: print(f"launchpad: {why}", file=sys.stderr))
    return {each.run_id: each for each in found if not each.has_ended()}


def is_away(run: RunRecord) -> bool:
    """Whether its supervisor is not on this machine, as far as can be seen here, or was killed here."""
    return bool(run.host) and not run.lives


def has_ended_away(run: RunRecord) -> bool:
    """Whether a program on a cluster has ended, as far as anybody there can tell."""
    try:
        return away()[run.run_id].has_ended()
    except LaunchError:
        return True


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
def connected(run: RunRecord) -> Iterator[Client[Any] | _Away]:
    """A client of the run's control endpoint, or what does the same by way of the cluster.

    Raises:
      CommandError: it ends just now, or does not answer.
    """
    if is_away(run):
        yield _Away(away()[run.run_id])
        return
    try:
        with control.connected(Path(run.runtime)) as client:
            yield client
    except (OSError, CourierError) as error:
        raise CommandError(
            f"{run.run_id} does not answer: {error}. If that stays so, look at its launcher: pid {run.pid}"
        ) from error


class _Away:
    """The methods of a control endpoint, for a program that was left on a cluster."""

    def __init__(self, detached: Detached) -> None:
        self._detached = detached

    def status(self) -> list[dict[str, Any]]:
        return [asdict(row) for row in self._asked(self._detached.status)]

    def stop(self, at_once: bool) -> None:
        self._asked(lambda: self._detached.stop(at_once=at_once))

    def stacks(self, workers: Sequence[str]) -> dict[str, str]:
        return self._asked(lambda: self._detached.stacks(list(workers)))

    def _asked(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except LaunchError as error:
            raise CommandError(str(error)) from error


def _listed(runs: Sequence[RunRecord]) -> str:
    return "".join(f"\n  {run.run_id}  ({run.program}, pid {run.pid})" for run in runs)
