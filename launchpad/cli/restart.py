"""End the running attempt of a worker in good order, and start the next one, whatever its policy says.

Where its policy has a scope of `group` or `program`, all of that is restarted. It is no failure.
"""

from __future__ import annotations

import argparse
import time

from launchpad.cli import runs
from launchpad.cli.runs import CommandError
from launchpad.courier import formatting

_PAUSE_S = 0.1

ARGUMENTS = {
    "run": {"metavar": "RUN", "nargs": "?", "help": "which"},
    "worker": {"metavar": "WORKER", "help": "one worker, such as actor-3"},
}


def run(options: argparse.Namespace) -> None:
    """Sends the request, and returns when the next attempt has begun."""
    one, worker = runs.find(options.run), options.worker
    with runs.connected(one) as client:
        rows = {row["worker"]: row for row in client.status()}
        if worker not in rows:
            raise CommandError(f"{one.run_id} has no worker {worker!r}; it has {', '.join(rows)}")
        before = rows[worker]["attempt"]
        began = time.monotonic()
        client.restart(worker)
        print(f"restarting {worker} of {one.run_id} (attempt {before}) …", flush=True)
        attempt = before
        while attempt == before:
            time.sleep(_PAUSE_S)
            attempt = next(r["attempt"] for r in client.status() if r["worker"] == worker)
    print(f"attempt {attempt} began after {formatting.seconds(time.monotonic() - began)}")
