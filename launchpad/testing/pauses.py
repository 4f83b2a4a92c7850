"""Workers that are stuck, or slow: their processes are stopped (SIGSTOP) and go on (SIGCONT)."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from launchpad.launch.running import Running

_STILL_S = 1.0
_STILL = "tTZX"
"""The states of threads that run no more: stopped, or at their end."""


@contextlib.contextmanager
def stuck(running: Running, worker: str) -> Iterator[None]:
    """For as long as the block lasts the worker's process does nothing: it is stopped, and not dead.

    Its connections stay open, and nobody is told: as with a machine that swaps, or a debugger.

    Example:
      with lp.testing.stuck(running, "learner-0"):
        with pytest.raises(lp.courier.DeadlineExceeded):
          client.with_options(timeout_s=1).step()

    Raises:
      KeyError: There is no such worker.
      RuntimeError: It has no process of its own, as threads have not, or is not running.
    """
    pid = _process_of(running, worker)
    _send(pid, signal.SIGSTOP)
    try:
        _wait_until_still(pid)
        yield
    finally:
        _send(pid, signal.SIGCONT)


@contextlib.contextmanager
def slow(
    running: Running, worker: str, share: float = 0.1, period_s: float = 0.05
) -> Iterator[None]:
    """For as long as the block lasts the worker runs only a share of the time.

    Example:
      with lp.testing.slow(running, "worker-3", share=0.2):    # a straggler: five times slower
        running.wait(60)

    Args:
      running: The program.
      worker: Who is slow.
      share: How much of each period it runs, from 0 to 1.
      period_s: How long a period is.

    Raises:
      KeyError: There is no such worker.
      RuntimeError: It has no process of its own, as threads have not, or is not running.
    """
    if not 0 < share < 1:
        raise ValueError(f"share is how much of the time it runs, between 0 and 1, not {share!r}")
    pid, is_over = _process_of(running, worker), threading.Event()
    thread = threading.Thread(
        target=_slow_down, args=(pid, share * period_s, period_s, is_over), name="launchpad-slow"
    )
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _slow_down(pid: int, runs_s: float, period_s: float, is_over: threading.Event) -> None:
    while not is_over.wait(runs_s):
        _send(pid, signal.SIGSTOP)
        is_over.wait(period_s - runs_s)
        _send(pid, signal.SIGCONT)


def _process_of(running: Running, worker: str) -> int:
    statuses = {status.worker: status for status in running.status()}
    if worker not in statuses:
        raise KeyError(f"there is no worker {worker!r}; there are {list(statuses)}")
    if statuses[worker].pid is None:
        raise RuntimeError(
            f"{worker} ({statuses[worker].state}) has no process of its own that could be stopped. Threads"
            " cannot be stopped from outside: launch with test_mp or local_mp, and wait until it runs."
        )
    return statuses[worker].pid or 0


def _wait_until_still(pid: int) -> None:
    """A thread that runs meanwhile on another processor stops a little after the signal was sent."""
    deadline = time.monotonic() + _STILL_S
    while time.monotonic() < deadline and _moves(pid):
        time.sleep(0.001)


def _moves(pid: int) -> bool:
    """Whether one of its threads is not stopped; False where nobody tells."""
    states = [_state(file) for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    return any(state not in _STILL for state in states)


def _state(stat: Path) -> str:
    """The letter after the name, in which there may be anything; nothing for a thread that has ended."""
    try:
        return stat.read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has died meanwhile
        os.kill(pid, number)
