"""From a plan to a program that runs: the one step that touches the world."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from launchpad.courier import keyring
from launchpad.launch.running import Running

if TYPE_CHECKING:
    from launchpad.launch.backend import Backend
    from launchpad.launch.output import Output
    from launchpad.launch.plan import LaunchPlan
    from launchpad.launch.run_directory import RunDirectory


def begin(
    planned: LaunchPlan, backend: Backend, run: RunDirectory, output: Output, grace_s: float
) -> Running:
    """Begins the run; leaves nothing behind when that fails."""
    keyring.add(run.scope, os.urandom(32))
    try:
        planned = backend.claim(planned, run)
        running = Running(_placed(planned, run), backend, run, output, grace_s)
        running.begin()
    except BaseException:
        keyring.remove(run.scope)
        run.remove()
        raise
    return running


def _placed(planned: LaunchPlan, run: RunDirectory) -> LaunchPlan:
    """The plan with endpoints in this run's directory."""
    workers = [
        dataclasses.replace(
            w, endpoints={name: run.place(endpoint) for name, endpoint in w.endpoints.items()}
        )
        for w in planned.workers
    ]
    return dataclasses.replace(planned, workers=tuple(workers))
