"""Record for some seconds what a program does: calls, waits, restarts, as a picture for https://ui.perfetto.dev."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

from launchpad.cli import runs
from launchpad.cli.runs import CommandError
from launchpad.courier.telemetry.recording import MAX_S
from launchpad.telemetry.trace import Trace

_MORE_S = 30.0
"""So much longer than the recording the program may take to answer."""

ARGUMENTS: dict[str, dict[str, Any]] = {
    "run": {"metavar": "RUN", "nargs": "?", "help": "which"},
    "--seconds": {"type": float, "default": 5.0, "help": "for how long, up to 60 (default: 5)"},
    "-o --output": {"default": "trace.json", "metavar": "FILE", "help": "default: trace.json"},
}


def run(options: argparse.Namespace) -> None:
    """Records, and writes the file."""
    if not 0 < options.seconds <= MAX_S:
        raise CommandError(f"--seconds is a number up to {MAX_S:g}, not {options.seconds:g}")
    one = runs.find(options.run)
    try:
        # Before, not after, the seconds. What the file holds stays there until the recording is here.
        file = open(options.output, "a", encoding="utf-8")  # noqa: SIM115
    except OSError as error:
        raise CommandError(f"cannot write {options.output}: {error.strerror}") from error
    print(f"recording {one.run_id} for {options.seconds:g} s …", flush=True)
    with file, runs.connected(one) as client:
        recording = client.with_options(timeout_s=options.seconds + _MORE_S)
        trace: Trace = recording.trace(options.seconds)
        with contextlib.suppress(OSError):  # a pipe, or a device
            file.truncate(0)
        trace.write(file)
    print(f"{trace}\nwritten to {options.output}: open it at https://ui.perfetto.dev")
