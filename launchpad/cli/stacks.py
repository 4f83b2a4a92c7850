"""Print where the threads of the workers are now.

Threads that run nothing but launchpad and Python's own library are only counted; --all shows them too.
"""

from __future__ import annotations

import argparse

from launchpad.cli import runs
from launchpad.view.stacks import without_launchpad_frames

_RUNNING = ("starting", "running", "stopping")

ARGUMENTS = {
    "run": {"metavar": "RUN", "nargs": "?", "help": "which"},
    "label": {"metavar": "LABEL", "nargs": "?", "help": "only of this group or worker"},
    "--all": {"action": "store_true", "help": "launchpad's own threads, too"},
}


def run(options: argparse.Namespace) -> None:
    """Prints them, worker after worker."""
    one, label = None, options.label
    if options.run is not None and label is None:  # one word alone may be either
        candidates = runs.candidates(options.run)
        if len(candidates) == 1 and not runs.matching(candidates, options.run):
            one, label = candidates[0], options.run
    one = one or runs.find(options.run)
    wanted = set(runs.workers_of(one, label))
    with runs.connected(one) as client:
        running = [row for row in client.status() if row["state"] in _RUNNING]
        shown = [row for row in running if label is None or row["worker"] in wanted]
        stacks = client.stacks([row["worker"] for row in shown])
    for row in shown:
        text = stacks[row["worker"]].rstrip()
        print(f"=== {row['worker']} (pid {row['pid'] or one.pid}, {row['state']})")
        print(text if options.all else without_launchpad_frames(text), end="\n\n")
    if not shown:
        which = "no worker" if label is None else f"no worker of {label!r}"
        print(f"{which} of {one.run_id} runs now")
