"""The forkserver starts before there is a plan, and may not outlive a launch that comes to nothing."""

from __future__ import annotations

import subprocess
import sys
import threading

import psutil
import pytest

import launchpad as lp
from launchpad.launch.backends.processes import forkserver_handle
from tests.helpers.programs import single
from tests.waiting import runs, until


def test_a_mistake_in_the_program_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    process = forkserver_handle.start()
    monkeypatch.setattr(forkserver_handle, "start", lambda: process)

    with pytest.raises(lp.DefinitionError):
        lp.launch(single(lp.PyNode(print, threading.Lock())), "test_mp")

    assert process.subreaper.returncode is not None


def test_it_ends_with_a_launcher_that_is_killed_before_it_has_a_plan() -> None:
    script = """
import time
from launchpad.launch.backends.processes import forkserver_handle
print(forkserver_handle.start().subreaper.pid, flush=True)
time.sleep(1000)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as launcher:
        assert launcher.stdout is not None
        subreaper = psutil.Process(int(launcher.stdout.readline()))
        until(subreaper.children)
        (forkserver,) = subreaper.children()

        launcher.kill()

        until(lambda: not runs(subreaper) and not runs(forkserver))
