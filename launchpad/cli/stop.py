"""Stop a program as one Ctrl-C does, and wait until it has ended."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from launchpad.cli import runs
from launchpad.courier import formatting
from launchpad.launch.rundir import locations

ARGUMENTS = {
    "run": {"metavar": "RUN", "nargs": "?", "help": "which"},
    "--now": {"action": "store_true", "help": "by force, as two Ctrl-C: workers get no time"},
}


def run(options: argparse.Namespace) -> None:
    """Sends the request, and returns when nothing of the program runs any more."""
    one = runs.find(options.run)
    print(f"stopping {one.run_id} (pid {one.pid}) …", flush=True)
    began = time.monotonic()
    with runs.connected(one) as client:
        client.stop(options.now)
    locations.wait_until_free(Path(one.runtime))  # one on a cluster has ended already
    print(f"stopped after {formatting.seconds(time.monotonic() - began)}")
