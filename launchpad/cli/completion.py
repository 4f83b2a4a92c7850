"""Completes command lines in a shell: commands, options, and the names of runs, groups and workers.

By argcomplete (`pip install launchpad-graph[completion]`), since a script that was written once, as shtab's,
knows no names. The shell runs `launchpad` for it, with $_ARGCOMPLETE set.
"""

from __future__ import annotations

import argparse
import contextlib
from typing import Any, cast

from launchpad.cli import runs
from launchpad.errors import LaunchError
from launchpad.launch.rundir import record

_NAMES = ("run", "label", "worker", "drawn")
"""The arguments that are names of runs, groups and workers."""


def complete(parser: argparse.ArgumentParser) -> None:
    """Prints what could stand at the cursor, and exits; returns where argcomplete is not installed."""
    with contextlib.suppress(ImportError):
        import argcomplete

        argcomplete.autocomplete(parser, default_completer=cast("Any", _completions))


def _completions(
    *, prefix: str, action: argparse.Action, parsed_args: argparse.Namespace, **_: Any
) -> list[str]:
    """What an argument may be; of the runs on this machine, since a cluster takes too long to answer."""
    if action.dest not in _NAMES:
        from argcomplete.completers import FilesCompleter

        return list(FilesCompleter()(prefix))
    # Where RUN may be left out, argparse does not know yet which argument a first word is.
    before = [word for name in _NAMES if (word := getattr(parsed_args, name, None))]
    try:
        running = record.running()
        found = [run for word in before for run in runs.matching(running, word)]
        if before and not found and hasattr(parsed_args, "follow"):  # there are logs of others, too
            found = [run for word in before for run in runs.matching(record.ended(), word)][-1:]
    except LaunchError:
        return []
    words = [] if found else [name for run in running for name in (run.program, run.run_id)]
    if action.dest != "drawn" and len(chosen := found or running) == 1:
        words += chosen[0].workers
        words += [] if hasattr(parsed_args, "worker") else chosen[0].workers.values()
    return list(dict.fromkeys(words))
