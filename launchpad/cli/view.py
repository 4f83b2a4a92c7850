"""Watch programs in the browser: graph, workers, logs, failures; of runs that have ended, too.

The page is on a port of this machine, and opens with the address that is printed, once. It only shows, unless
--control is given: then it has buttons that stop a program and restart a worker.
"""

from __future__ import annotations

import argparse
import os
import threading

from launchpad.cli import runs
from launchpad.cli.runs import CommandError
from launchpad.courier import extras
from launchpad.launch.rundir import record
from launchpad.launch.rundir.record import RunRecord

ARGUMENTS = {
    "run": {
        "metavar": "RUN",
        "nargs": "?",
        "help": "which is shown first, also one that has ended",
    },
    "--port": {
        "type": int,
        "default": 0,
        "metavar": "PORT",
        "help": "on 127.0.0.1; the default is a free one",
    },
    "--control": {
        "action": "store_true",
        "help": "with buttons that stop a program and restart a worker; else the page only shows",
    },
}


def run(options: argparse.Namespace) -> None:
    """Serves the pages until Ctrl-C."""
    _serve(_first(options.run), options.port, control=options.control)


def beside_a_script(run_id: str) -> None:
    """Serves the pages until stdin is closed, as it is when the script ends that has this as its child."""

    def end() -> None:
        while os.read(0, 1):
            continue
        os._exit(0)

    threading.Thread(target=end, daemon=True).start()
    try:
        _serve(_first(run_id), 0, control=False)
    except CommandError as error:
        raise SystemExit(f"launchpad: {error}") from error


def _serve(first: RunRecord | None, port: int, *, control: bool) -> None:
    try:
        from launchpad.view import server
        from launchpad.view.pages.frame import path_of
        from launchpad.view.run_list import RunList
    except ImportError as error:
        raise CommandError(
            f"`view` needs NiceGUI, which cannot be imported here ({error}): {extras.install_command('view')}"
        ) from error
    run_list = RunList(_all, runs.connected, may_control=control)
    start = "/"
    if first is not None:
        run_list.watch(first)
        start = path_of(first.run_id)
    try:
        server.serve(run_list, start, port, _print_address)
    except OSError as error:
        raise CommandError(f"port {port} of 127.0.0.1 cannot be used: {error}") from error


def _first(wanted: str | None) -> RunRecord | None:
    """The run that is shown first; None: the list of all."""
    running = runs.matching(runs.candidates(wanted), wanted)
    if wanted is None:
        return running[0] if len(running) == 1 else None
    if not running:
        running = runs.matching(record.ended(), wanted)[-1:]
    return runs.only(running, wanted, _all())


def _all() -> list[RunRecord]:
    """All runs of this user, the newest last."""
    here = [*record.ended(), *record.running()]
    known = {each.run_id for each in here}
    detached = [d.record for run_id, d in runs.detached_runs().items() if run_id not in known]
    return sorted([*here, *detached], key=lambda each: each.began)


def _print_address(url: str) -> None:
    print(f"launchpad view: {url}\n(opens once, in one browser; Ctrl-C ends it)", flush=True)
