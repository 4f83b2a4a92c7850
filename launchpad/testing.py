"""For tests of programs: run one with a deadline, let messages get lost, check that nothing is left over.

Example:
  def test_the_counts_agree():
    running = lp.testing.run(make_program(), timeout_s=30, launch_type="test_mp")
    assert "the counts agree" in running.logs("driver")
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from launchpad.courier.faults import Faults as Faults
from launchpad.launch.launch import launch
from launchpad.launch.registry import LaunchType
from launchpad.launch.running import Running
from launchpad.program import Program
from launchpad.resources import PythonProcess
from launchpad.restart_policy import RestartPolicy


def run(
    program: Program,
    timeout_s: float = 60.0,
    launch_type: LaunchType | str = "test_mt",
    local_resources: Mapping[str, PythonProcess] | None = None,
    *,
    restart: RestartPolicy | Mapping[str, RestartPolicy] | None = None,
) -> Running:
    """Runs a program to its end.

    Args:
      program: What to run.
      timeout_s: How long it may take.
      launch_type: `test_mt` for threads, `test_mp` for processes.
      local_resources, restart: As for `lp.launch`.

    Returns:
      The Running that has ended, for its logs and status.

    Raises:
      ProgramFailed: a worker failed.
      TimeoutError: it was not done in time; it has been stopped.
    """
    running = launch(program, launch_type, local_resources=local_resources, restart=restart)
    try:
        running.wait(timeout_s)
    finally:
        running.stop("the test is over")
    return running


@contextlib.contextmanager
def nothing_left_over(within_s: float = 5.0) -> Iterator[None]:
    """Fails if the block leaves a process, a thread or a file descriptor behind.

    Example:
      with lp.testing.nothing_left_over():
        lp.testing.run(make_program())

    Raises:
      AssertionError: naming what is left after `within_s` seconds of waiting for it to go.
    """
    before = _inventory()
    yield
    gc.collect()  # a client in a traceback closes its connections only then
    deadline = time.monotonic() + within_s
    while (left := _inventory() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left, f"left over: {sorted(left)}"


def _inventory() -> set[str]:
    import psutil

    children = {
        f"process {p.pid} {p.name()}"
        for p in psutil.Process().children(recursive=True)
        if _lives(p)
    }
    threads = {f"thread {t.name} ({t.ident})" for t in threading.enumerate()}
    return children | threads | _descriptors()


def _lives(process: object) -> bool:
    import psutil

    assert isinstance(process, psutil.Process)
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE or process.ppid() == os.getpid()
    return False


def _descriptors() -> set[str]:
    """Each open one. Those without a name are only counted: gRPC renumbers its own after a fork."""
    named: set[str] = set()
    nameless: Counter[str] = Counter()
    for fd in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/dev/fd/{fd}")
            if target.startswith("anon_inode:"):
                nameless[target] += 1
            elif not target.startswith("/proc/"):
                named.add(f"descriptor {fd} {target}")
    return named | {
        f"descriptor {target}, the {i + 1}." for target, n in nameless.items() for i in range(n)
    }
