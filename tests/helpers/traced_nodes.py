"""Nodes of programs that are recorded."""

from __future__ import annotations

import os
import signal
from typing import Any

import launchpad as lp
from launchpad.courier.telemetry import tracing


def call(counter: Any) -> None:
    """Calls, waits for the others of its group, and begins anew, until it is asked to stop."""
    while not lp.stop_event().is_set():
        counter.add()
        counter.futures.add().result()
        lp.barrier("all have called")
        lp.wait_for_stop(0.01)


def call_and_die(counter: Any) -> None:
    """Calls; the first attempt dies once it is recorded."""
    while not lp.stop_event().is_set():
        counter.add()
        if lp.current().attempt == 1 and tracing.recorder is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        lp.wait_for_stop(0.01)
