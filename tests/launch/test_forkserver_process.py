"""The forkserver starts before there is a plan, and may not outlive a launch that comes to nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

import launchpad as lp
from launchpad.launch.backends.processes import forkserver_process
from tests.waiting import runs, until


def program_of(*arguments: object) -> lp.Program:
    program = lp.Program("early")
    program.add_node(lp.PyNode(print, *arguments), label="printer")
    return program


def test_a_mistake_in_the_program_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    process = forkserver_process.start()
    monkeypatch.setattr(forkserver_process, "start", lambda: process)

    with pytest.raises(lp.DefinitionError):
        lp.launch(program_of(threading.Lock()), "test_mp")

    assert process.subreaper.returncode is not None


def test_it_ends_with_a_launcher_that_is_killed_before_it_has_a_plan() -> None:
    script = """
import time
from launchpad.launch.backends.processes import forkserver_process
print(forkserver_process.start().subreaper.pid, flush=True)
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


def test_what_it_prints_before_it_has_a_log_is_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho this Python is broken >&2\nexit 3\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))

    with pytest.raises(lp.ProgramFailed, match="exited with code 3") as caught:
        lp.testing.run(program_of(), 20, "test_mp")

    assert caught.value.outcome.last_lines == ("this Python is broken",)
    assert caught.value.outcome.log_path is not None
    assert os.path.basename(caught.value.outcome.log_path) == "forkserver.log"
