"""The job whose nodes join the launcher: one that launchpad submits, or the one in which the script runs."""

from __future__ import annotations

import abc
import contextlib
import logging
import math
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from launchpad.courier.own_threads import OwnThread
from launchpad.launch.backends.slurm import script, squeue
from launchpad.launch.backends.slurm.squeue import JobState
from launchpad.launch.signals import KeyboardInterruptHandler

_log = logging.getLogger("launchpad.slurm")

_POLL_S = 2.0
_POLL_RUNNING_S = 10.0
_END_S = 5.0
"""How long a job may take to end after its node processes were asked to."""

_LOOK_S = 0.25

_SILENT_S = 60.0
"""How long squeue may say nothing about the job before the user is told."""

_LEFT_BEHIND_S = 7 * 24 * 3600.0
"""The age of a run's folder from which on no launcher uses it. A launcher marks it every few seconds, unless
it is stopped or suspended. Its job may wait in the queue all the same, and needs the folder."""

_SHOWN_LINES = 20


class SlurmJob(abc.ABC):
    """A job. One thread asks Slurm about it every few seconds.

    Args:
        number: Slurm's number of the job; of a task of a job array, ARRAY_TASK once squeue has answered.
        on_state: Called with each new state.
        on_end: Called once, when no process of the nodes runs any more, with the reason.

    Attributes:
        is_quick: True while the state may change at any moment, so that it is asked for more often.
    """

    def __init__(
        self,
        number: str,
        on_state: Callable[[JobState], object],
        on_end: Callable[[str], object],
    ) -> None:
        self.number = number
        self.is_quick = True
        self._on_state = on_state
        self._on_end = on_end
        self._is_over = threading.Event()
        self._thread = OwnThread(target=self._watch, name="launchpad-slurm-job")

    @property
    @abc.abstractmethod
    def output(self) -> Path:
        """The file with what the node processes print."""

    @abc.abstractmethod
    def close(self, *, was_asked: bool) -> None:
        """End what is left of it. With `was_asked`, its node processes were asked to, and get some time."""

    def last_lines(self) -> tuple[str, ...]:
        """Return the last lines that the node processes have printed."""
        try:
            printed = self.output.read_text(errors="replace")
        except OSError:
            return ()
        return tuple(printed.splitlines()[-_SHOWN_LINES:])

    def begin(self) -> None:
        """Start to watch it."""
        self._thread.start()

    def _watch(self) -> None:
        last: JobState | None = None
        answered_at = time.monotonic()
        while not self._is_over.wait(_POLL_S if self.is_quick else _POLL_RUNNING_S):
            self._mark()
            state = squeue.state_of(self.number)
            if state is None:
                if time.monotonic() - answered_at > _SILENT_S:
                    _log.warning(
                        "squeue has said nothing about Slurm job %s for %g s, so its state and its time limit"
                        " are not known",
                        self.number,
                        _SILENT_S,
                    )
                    # Once is enough until it answers again.
                    answered_at = math.inf
                continue
            answered_at = time.monotonic()
            self.number = state.task or self.number
            if state != last:
                self._on_state(state)
            last = state
            if state.has_ended:
                self._on_end(str(state))
                return

    @abc.abstractmethod
    def _mark(self) -> None:
        """Show other launchers that this one uses the files of the job."""

    def _stop_watching(self) -> None:
        self._is_over.set()
        self._thread.join()


class BatchJob(SlurmJob):
    """A job that launchpad submits. Its files are in a folder that the job's first node shares.

    Raises:
        LaunchError: Slurm refuses the job.
    """

    def __init__(
        self,
        options: Sequence[str],
        n_nodes: int,
        folder: Path,
        join: bytes,
        log: Path,
        on_state: Callable[[JobState], object],
        on_end: Callable[[str], object],
    ) -> None:
        self._folder = folder
        self._log = log
        _remove_leftovers(folder.parent)
        folder.mkdir(mode=0o700, parents=True)
        number = ""
        try:
            _write_private(folder / script.JOIN, join, 0o600)
            batch = folder / "job.sh"
            _write_private(batch, script.text(options, n_nodes, folder).encode(), 0o700)
            # Ctrl-C takes effect when the number is known.
            with KeyboardInterruptHandler(lambda at_once: None):
                number = squeue.submit(str(batch))
            super().__init__(number, on_state, on_end)
        except BaseException:
            if number:
                squeue.request("scancel", number)
            shutil.rmtree(folder, ignore_errors=True)
            raise

    @property
    def output(self) -> Path:
        return self._folder / script.OUTPUT

    def close(self, *, was_asked: bool) -> None:
        self._stop_watching()
        if not was_asked or not self._ends_by_itself():
            squeue.request("scancel", self.number)
        with contextlib.suppress(OSError):
            shutil.copyfile(self.output, self._log)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _mark(self) -> None:
        with contextlib.suppress(OSError):
            os.utime(self._folder)

    def _ends_by_itself(self) -> bool:
        until = time.monotonic() + _END_S
        while time.monotonic() < until:
            state = squeue.state_of(self.number)
            if state is not None and (state.has_ended or state.state == "COMPLETING"):
                return True
            time.sleep(_LOOK_S)
        return False


class OwnJob(SlurmJob):
    """The job in which the script runs. Its nodes are started as one more step of it."""

    def __init__(
        self,
        number: str,
        n_nodes: int,
        join: bytes,
        log: Path,
        on_state: Callable[[JobState], object],
        on_end: Callable[[str], object],
    ) -> None:
        super().__init__(number, on_state, on_end)
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                script.step(n_nodes),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                # Ctrl-C in a terminal goes to the launcher, which then stops its workers in order.
                start_new_session=True,
            )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(join)
        OwnThread(target=self._wait, name="launchpad-slurm-step").start()

    @property
    def output(self) -> Path:
        return self._log

    def close(self, *, was_asked: bool) -> None:
        self._stop_watching()
        for end in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(_END_S if was_asked else 0)
                return
            except subprocess.TimeoutExpired:
                end()
                was_asked = True
        self._process.wait()

    def _mark(self) -> None:
        """Do nothing: the job has no files that another launcher could take for its own."""

    def _wait(self) -> None:
        status = self._process.wait()
        if not self._is_over.is_set():
            self._on_end(f"its srun has ended with exit status {status}")


def own_number() -> str:
    """Return the number of the job in which this process runs; empty if it runs in none."""
    return os.environ.get("SLURM_JOB_ID", "")


def _remove_leftovers(parent: Path) -> None:
    """Remove the folders of launchers that were killed.

    Several clusters may share the home folder, so Slurm doesn't know the jobs of all launchers.
    """
    now = time.time()
    for folder in parent.glob("*"):
        with contextlib.suppress(OSError):  # its launcher ends at this moment
            if now - folder.stat().st_mtime > _LEFT_BEHIND_S:
                shutil.rmtree(folder, ignore_errors=True)


def _write_private(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
