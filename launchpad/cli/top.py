"""Watch a program that runs, in the terminal: workers, calls between groups, logs; restart and stop."""

from __future__ import annotations

import argparse
import sys

from launchpad.cli import runs
from launchpad.cli.runs import CommandError
from launchpad.courier import extras

ARGUMENTS = {
    "run": {"metavar": "RUN", "nargs": "?", "help": "which"},
    "--interval": {
        "type": float,
        "default": 1.0,
        "metavar": "SECONDS",
        "help": "between two looks; the default is 1",
    },
}


def run(options: argparse.Namespace) -> None:
    """Shows it until `q` is pressed."""
    try:
        from launchpad.view.terminal import Top
    except ImportError as error:
        raise CommandError(
            f"`top` needs textual, which cannot be imported here ({error}): {extras.install_command('top')}"
        ) from error
    if options.interval <= 0:
        raise CommandError(f"--interval {options.interval} is to be more than 0 seconds")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError("`top` needs a terminal; without one, see `launchpad ps RUN --json`")
    one = runs.find(options.run)
    title = f"{one.program} · {one.run_id} · {one.launch_type}"
    with runs.connected(one) as client:
        top = Top(client, title, options.interval, runs.LOOK_S)
        top.run()
    if top.return_code:  # textual has printed why
        raise SystemExit(top.return_code)
