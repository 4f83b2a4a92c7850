"""Waiting for what another thread or process does soon."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import psutil

import launchpad as lp

T = TypeVar("T")


def until(condition: Callable[[], T], within_s: float = 60.0) -> T:
    """What the condition says as soon as it is true; it is asked every 5 ms, since nothing signals it."""
    deadline = time.monotonic() + within_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s"
        threading.Event().wait(0.005)
    return result


def pid_of(running: lp.Running, worker: str) -> int:
    """The process of this worker, which may answer calls before the launcher has been told its number."""
    return until(lambda: next(s.pid for s in running.status() if s.worker == worker) or 0)


def pause(pid: int) -> None:
    """Stops a process, until SIGCONT. On a busy machine its other threads run on for a while."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)


def runs(process: psutil.Process) -> bool:
    """Whether it has not ended; one that its parent has not reaped yet has."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
