"""A launcher that was started with SIGTERM ignored: a SIGTERM to all of its processes ends no worker.

Slurm's node processes are such launchers. Slurm sends SIGTERM to all processes of a job at once.
"""

from __future__ import annotations

import signal
from pathlib import Path

import psutil

from tests.helpers import scripts
from tests.waiting import until

SCRIPT = """
import multiprocessing
import os
import signal
import subprocess
import time
import launchpad as lp

def work():
    subprocess.Popen(["sleep", "1000"])
    if os.fork() == 0:
        open("begun", "w").close()
        time.sleep(1000)
    lp.wait_for_stop()
    open("stopped", "w").close()

# As a node process does: what it starts ignores SIGTERM, and it learns of one by `sigwait`.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
program = lp.Program("work")
program.add_node(lp.PyNode(work), label="worker")
with lp.launch(program, "test_mp") as running:
    signal.sigwait([signal.SIGTERM])
    print(running.status()[0].state, running.status()[0].attempt, flush=True)
    running.stop()
"""


def test_workers_go_on_after_a_sigterm_to_all_and_stop_when_they_are_asked_to(
    tmp_path: Path,
) -> None:
    process = scripts.start(scripts.write(tmp_path, SCRIPT), cwd=tmp_path)
    until((tmp_path / "begun").exists)
    launcher = psutil.Process(process.pid)
    below = launcher.children(recursive=True)
    own = [child for child in below if child.ppid() == _worker(below).pid]

    for child in below:
        child.send_signal(signal.SIGTERM)

    # What the worker has started itself ends as anywhere else.
    until(lambda: all(_has_ended(child) for child in own))
    launcher.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert len(own) == 2
    assert output == "running 1\n"
    assert (tmp_path / "stopped").exists()


def _worker(processes: list[psutil.Process]) -> psutil.Process:
    return next(process for process in processes if process.name().startswith("worker-0"))


def _has_ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
