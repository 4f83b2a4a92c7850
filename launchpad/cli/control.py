"""The commands that change a running program: `stop` and `restart`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from launchpad.cli import runs
from launchpad.cli.command import WORKER, argument, command, run_argument
from launchpad.courier import formatting
from launchpad.launch.rundir import locations

_PAUSE_S = 0.1


@command(
    run_argument(),
    argument("--now", action="store_true", help="by force, as two Ctrl-C: workers get no time"),
)
def stop(options: argparse.Namespace) -> None:
    """Stop a program as one Ctrl-C does, and wait until it has ended."""
    run = runs.find(options.run)
    print(f"stopping {run.run_id} (pid {run.pid}) …", flush=True)
    began = time.monotonic()
    with runs.connected(run) as client:
        client.stop(options.now)
    # A run on a cluster has ended already.
    locations.wait_until_free(Path(run.runtime))
    print(f"stopped after {formatting.seconds(time.monotonic() - began)}")


@command(run_argument(), WORKER)
def restart(options: argparse.Namespace) -> None:
    """End the running attempt of a worker cleanly, and start the next one, whatever its policy says.

    Where its policy has a scope of `group` or `program`, all of that is restarted. It is no failure. The
    command returns when the next attempt has begun.
    """
    run = runs.find(options.run)
    worker = options.worker
    with runs.connected(run) as client:
        before = runs.status_of(client, run, worker)["attempt"]
        began = time.monotonic()
        client.restart(worker)
        print(f"restarting {worker} of {run.run_id} (attempt {before}) …", flush=True)
        attempt = before
        while attempt == before:
            time.sleep(_PAUSE_S)
            attempt = runs.status_of(client, run, worker)["attempt"]
    print(f"attempt {attempt} began after {formatting.seconds(time.monotonic() - began)}")
