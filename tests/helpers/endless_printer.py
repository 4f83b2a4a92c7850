"""Workers that talk, for tests that look at them from outside. Those import this module, and not pytest."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import launchpad as lp


def talk(server: Any, number: int) -> None:
    """Prints a numbered line, again and again; some programs' workers misbehave after the first."""
    program = lp.current().program
    line = 0
    while True:
        print(f"this is talker {number}, line {line}")
        line += 1
        server.add()
        time.sleep(0.01)
        if program == "clumsy" and line == 20 and lp.current().attempt == 1:
            raise ValueError("clumsy")
        if program == "crashing":
            raise ValueError("crashing")
        if program == "stubborn":
            _never_stop()
        if program == "stuck" and number == 1:
            _hold_the_interpreter()


def _never_stop() -> None:
    lp.stop_event()  # who has asked for it is trusted to look at it
    while True:
        time.sleep(0.1)


def _hold_the_interpreter() -> None:
    """C code that never lets go: no other thread of this process runs any more."""
    ctypes.PyDLL(None).sleep(1000)
