"""A job of Spark's whose tasks are hosts: one barrier stage, so all of them run or none does."""

from __future__ import annotations

import contextlib
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from launchpad.courier.own_threads import OwnThread
from launchpad.launch.backends.launcher_info import folder_of_script
from launchpad.launch.backends.spark import code, session
from launchpad.launch.backends.spark.task_connection import TaskConnection
from launchpad.launch.backends.spark.task_host import LauncherAddress

_POLL_S = 0.1
"""How often Spark is asked for its slots, until there are enough."""

_RETURN_S = 30.0
"""How long a new executor may take to stand in for one that has died."""


@dataclass(frozen=True)
class SlotsWanted:
    """The number of slots that a job takes. Pure.

    Attributes:
        most: It takes no more.
        least: Fewer are of no use, since so many workers want a task each.
        before: So many the job before had. After the death of an executor there are fewer, until Spark has
            started another one.
    """

    most: int
    least: int = 1
    before: int = 0

    def are_met_by(self, n_slots: int, is_settled: bool, waited_s: float) -> bool:
        """Return True if the job should start now, with `n_slots` slots or `most` of them."""
        if n_slots >= self.most:
            return True
        has_all = n_slots >= self.before or waited_s >= _RETURN_S
        return n_slots >= self.least and is_settled and has_all


class HostJob:
    """The job, and the tasks of it that have joined. Its methods are called by one thread, the launch's.

    Args:
        name: What the Spark UI calls it.
        wanted: How many hosts there are to be.
        on_counted: Called with their number before the job is submitted, in the job's thread.
        on_end: Called with this and what the job has failed with, in the job's thread.

    Attributes:
        n_tasks: How many tasks it has; 0 while that is not known.
        joined: Task → the connection to it.
        hosts: Worker → task.
        is_lost: Some task has gone, and so the others go.
        lost_task: The one with which that began, if it is known.
        has_ended: Spark has ended the job.
        why: Why it ends, as Spark says or as was seen before.
    """

    def __init__(
        self,
        context: Any,
        name: str,
        wanted: SlotsWanted,
        launcher: LauncherAddress,
        on_counted: Callable[[HostJob, int], object],
        on_end: Callable[[HostJob, BaseException | None], object],
    ) -> None:
        self._context = context
        self._name = name
        self._wanted = wanted
        self._launcher, self._on_counted, self._on_end = launcher, on_counted, on_end
        self._is_cancelled = threading.Event()
        self.n_tasks = 0
        self.joined: dict[int, TaskConnection] = {}
        self.hosts: Mapping[str, int] = {}
        self.is_lost = self.has_ended = False
        self.lost_task: int | None = None
        self.why = ""
        self.thread = OwnThread(target=self._run, name="launchpad-spark-job")
        self.thread.start()

    @property
    def _group(self) -> str:
        """Spark's group of jobs, which has no other."""
        return f"{self._name} {self._launcher.job}"

    @property
    def is_cancelled(self) -> bool:
        """True if Spark was told to end it, perhaps before it had begun."""
        return self._is_cancelled.is_set()

    @property
    def is_complete(self) -> bool:
        """True if all of its tasks have joined."""
        return 0 < self.n_tasks == len(self.joined)

    @property
    def is_ready(self) -> bool:
        """True if all of its tasks have joined and none is lost."""
        return self.is_complete and not self.is_lost

    def add(self, task: int, connection: TaskConnection) -> None:
        """A task has joined."""
        self.joined[task] = connection
        if self.is_lost:
            connection.end_task()

    def end_tasks(self) -> None:
        """Has all tasks end, and with them the job."""
        for connection in self.joined.values():
            connection.end_task()
        if not self.is_complete:
            self.cancel()

    def cancel(self) -> None:
        """Has Spark end it: it kills what does not end by itself."""
        self._is_cancelled.set()
        with contextlib.suppress(Exception):  # the context was stopped
            self._context.cancelJobGroup(self._group)

    def close(self, within_s: float) -> None:
        """Waits until it has ended, which it does with its tasks; else it is cancelled."""
        self.thread.join(within_s)
        if self.thread.is_alive():
            self.cancel()
            self.thread.join(within_s)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            if n_tasks := self._count():
                code.send_to_other_hosts(self._context)
                self._on_counted(self, n_tasks)
                self._submit(n_tasks)
        except Exception as raised:
            error = raised
        self._on_end(self, error)

    def _count(self) -> int:
        """Waits for slots; how many to take, 0 if it was cancelled meanwhile."""
        begun = time.monotonic()
        while not self._is_cancelled.wait(_POLL_S):
            n_slots, is_settled = session.slots(self._context), session.is_settled(self._context)
            if self._wanted.are_met_by(n_slots, is_settled, time.monotonic() - begun):
                return min(n_slots, self._wanted.most)
            if n_slots and session.is_fixed(self._context):
                return n_slots
        return 0

    def _submit(self, n_tasks: int) -> None:
        """Runs it to its end."""
        path, launcher, folder = list(sys.path), pickle.dumps(self._launcher), code.FOLDER
        project = str(folder_of_script())

        # Pickled as it is written here, since launchpad may not be found there before it has run.
        def on_task(task: int, _: Iterator[Any]) -> Iterator[Any]:
            import os
            import pickle
            import sys

            from pyspark import BarrierTaskContext, SparkFiles

            sent = SparkFiles.get(folder)
            is_sent = os.path.isdir(sent) and sent not in sys.path
            if is_sent and not os.path.isdir(project):
                sys.path.insert(0, sent)
            sys.path += [p for p in path if p not in sys.path and os.path.isdir(p)]
            if is_sent and sent not in sys.path:
                sys.path.append(sent)
            from launchpad.launch.backends.spark import task_host

            gpus = BarrierTaskContext.get().resources().get("gpu")
            addresses = () if gpus is None else tuple(gpus.addresses)
            task_host.serve(pickle.loads(launcher), task, addresses)
            return iter(())

        context = self._context
        context.setJobGroup(self._group, f"hosts of launchpad's program {self._name}")
        tasks = context.parallelize(range(n_tasks), n_tasks).barrier()
        tasks.mapPartitionsWithIndex(on_task).collect()


def reason(error: BaseException | None) -> str:
    """Return the line that matters in the error of a job, which is Java's and has many lines."""
    if error is None:
        return "it has ended"
    java = getattr(error, "java_exception", None)
    text = str(error if java is None else java.getMessage())
    text = text.rpartition(" finished unsuccessfully.\n")[2]
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    if not lines:
        return type(error).__name__
    if "PythonException" in lines[0]:  # then a traceback follows, whose last line says it
        unindented = [line for line in lines[1:] if not line.startswith((" ", "\t"))]
        return (unindented or lines)[-1].strip()
    return lines[0].strip()
