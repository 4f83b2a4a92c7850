"""Print where the threads of the workers are now.

Threads that run nothing but launchpad and Python's own library are only counted; --all shows them too.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import launchpad
from launchpad.cli import runs

_ALIVE = ("starting", "running", "stopping")
_OURS = str(Path(launchpad.__file__).parent)
_LIBRARY = re.compile(r"/lib(64)?/python3\.\d+/(?!site-packages|dist-packages)|^<")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`stacks [--all] [RUN] [LABEL]`."""
    parser.add_argument("run", metavar="RUN", nargs="?", help="which")
    parser.add_argument("label", metavar="LABEL", nargs="?", help="only of this group or worker")
    parser.add_argument("--all", action="store_true", help="launchpad's own threads, too")


def run(options: argparse.Namespace) -> None:
    """Prints them, worker after worker."""
    one, label = runs.living_with_label(options.run, options.label)
    wanted = set(runs.workers_of(one, label))
    with runs.connected(one) as client:
        alive = [row for row in client.status() if row["state"] in _ALIVE]
        shown = [row for row in alive if label is None or row["worker"] in wanted]
        stacks = client.stacks([row["worker"] for row in shown])
    for row in shown:
        text = stacks[row["worker"]].rstrip()
        print(f"=== {row['worker']} (pid {row['pid'] or one.pid}, {row['state']})")
        print(text if options.all else without_ours(text), end="\n\n")
    if not shown:
        which = "no worker" if label is None else f"nobody of {label!r}"
        print(f"{which} of {one.run_id} runs now")


def without_ours(stacks: str) -> str:
    """Only the threads in which there is code of somebody else's."""
    blocks = [block for block in re.split(r"\n\n+", stacks) if block.strip()]
    theirs = [block for block in blocks if _is_theirs(block)]
    rest = len(blocks) - len(theirs)
    count = f"({rest} thread{'s' * (rest != 1)} of launchpad's own; --all shows them)"
    return "\n\n".join([*theirs, *([count] if rest else [])])


def _is_theirs(block: str) -> bool:
    files = re.findall(r'^  File "([^"]+)"', block, flags=re.M)
    return not files or any(
        not file.startswith(_OURS) and not _LIBRARY.search(file) for file in files
    )
