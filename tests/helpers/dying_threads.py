"""Threads of launchpad's that die: in a file without pytest, since workers import it."""

from __future__ import annotations

import ctypes
import threading

import launchpad as lp


class Killed(BaseException):
    """Nothing that the code of a thread could have foreseen."""


def kill(beginning: str) -> None:
    """Raises it in the thread whose name begins so, which gets it at its next line of Python."""
    (ident,) = (each.ident for each in threading.enumerate() if each.name.startswith(beginning))
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident or 0), ctypes.py_object(Killed))


class Served:
    """Serves a method, and kills a thread of its process."""

    def __init__(self, beginning: str) -> None:
        self._beginning = beginning

    def echo(self, value: int) -> int:
        return value

    def run(self) -> None:
        kill(self._beginning)
        lp.wait_for_stop()
