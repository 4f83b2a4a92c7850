"""A Spark job whose tasks are worker hosts: one barrier stage, so all tasks run or none does."""

from __future__ import annotations

import contextlib
import logging
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from launchpad.courier.own_threads import OwnThread
from launchpad.launch.backends.launcher_info import folder_of_script
from launchpad.launch.backends.remote.joined_node import LauncherAddress
from launchpad.launch.backends.remote.node_connection import NodeConnection
from launchpad.launch.backends.spark import code, session

_log = logging.getLogger("launchpad.spark")

_POLL_S = 0.1
"""Seconds between two requests for Spark's number of slots, until there are enough slots."""

_RETURN_S = 30.0
"""How long a new executor may take to replace one that has died."""


@dataclass(frozen=True)
class SlotsWanted:
    """The number of slots that a job takes. Pure.

    Attributes:
        most: The most that the job takes.
        least: The least that it can use, because that many workers want a task each.
        before: The number that the previous job had. After the death of an executor there are fewer slots,
            until Spark has started another executor.
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
    """A job, and those of its tasks that have joined. Only the launch's thread calls its methods.

    Args:
        name: The name of the program in the Spark UI.
        number: The number of this job among those of the launch.
        slots_wanted: The number of slots to wait for and take.
        on_counted: Called in the job's thread, before the job is submitted, with the job and the number of
            its tasks.
        on_end: Called in the job's thread with the job and, if it has failed, its error.

    Attributes:
        n_tasks: The number of tasks; 0 while that is unknown.
        joined: Task → the connection to it.
        hosts: Worker → the task that is its host.
        is_lost: True if a task is gone. The other tasks end then, too.
        lost_task: The task that was lost first, if that is known.
        has_ended: True if Spark has ended the job.
        why: The reason for its end, as Spark says or as launchpad noticed before.
    """

    def __init__(
        self,
        context: Any,
        name: str,
        number: int,
        slots_wanted: SlotsWanted,
        launcher: LauncherAddress,
        on_counted: Callable[[HostJob, int], object],
        on_end: Callable[[HostJob, BaseException | None], object],
    ) -> None:
        self._context = context
        self._name = name
        self._number = number
        self._slots_wanted = slots_wanted
        self._launcher = launcher
        self._on_counted = on_counted
        self._on_end = on_end
        self._is_cancelled = threading.Event()
        self.n_tasks = 0
        self.joined: dict[int, NodeConnection] = {}
        self.hosts: Mapping[str, int] = {}
        self.is_lost = False
        self.has_ended = False
        self.lost_task: int | None = None
        self.why = ""
        self.thread = OwnThread(target=self._run, name="launchpad-spark-job")
        self.thread.start()

    @property
    def _group(self) -> str:
        """The name of Spark's group of jobs, in which this job is the only one."""
        return f"{self._name} {self._number}"

    @property
    def is_cancelled(self) -> bool:
        """True if Spark was asked to end the job, perhaps before it had begun."""
        return self._is_cancelled.is_set()

    @property
    def is_complete(self) -> bool:
        """True if all of its tasks have joined."""
        return 0 < self.n_tasks == len(self.joined)

    @property
    def is_ready(self) -> bool:
        """True if all of its tasks have joined and none is lost."""
        return self.is_complete and not self.is_lost

    def add(self, task: int, connection: NodeConnection) -> None:
        """Record that a task has joined. If the job is lost, end the task."""
        _log.debug("task %d of %s has joined", task, self._name)
        self.joined[task] = connection
        if self.is_lost:
            connection.end()

    def end_tasks(self) -> None:
        """Have all tasks end, and with them the job."""
        for connection in self.joined.values():
            connection.end()
        if not self.is_complete:
            self.cancel()

    def cancel(self) -> None:
        """Have Spark end the job. Spark kills tasks that don't end by themselves."""
        _log.debug("cancelling the job of %s", self._name)
        self._is_cancelled.set()
        with contextlib.suppress(Exception):  # the context was stopped
            self._context.cancelJobGroup(self._group)

    def close(self, within_s: float) -> None:
        """Wait until the job has ended, as it does with its tasks. If that takes too long, cancel it."""
        self.thread.join(within_s)
        if self.thread.is_alive():
            self.cancel()
            self.thread.join(within_s)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            n_tasks = self._count()
            if n_tasks:
                code.send_to_other_hosts(self._context)
                self._on_counted(self, n_tasks)
                self._submit(n_tasks)
        except Exception as raised:
            error = raised
        _log.debug("the job of %s has ended: %s", self._name, reason(error))
        self._on_end(self, error)

    def _count(self) -> int:
        """Wait for slots. Return how many to take, or 0 if the job is cancelled during the wait."""
        began = time.monotonic()
        while not self._is_cancelled.wait(_POLL_S):
            n_slots = session.slots(self._context)
            is_settled = session.is_settled(self._context)
            if self._slots_wanted.are_met_by(n_slots, is_settled, time.monotonic() - began):
                return min(n_slots, self._slots_wanted.most)
            if n_slots and session.is_fixed(self._context):
                return n_slots
        return 0

    def _submit(self, n_tasks: int) -> None:
        """Run the job to its end."""
        path = list(sys.path)
        launcher = pickle.dumps(self._launcher)
        number = self._number
        folder = code.FOLDER
        project = str(folder_of_script())

        # This function is pickled by value, since a task may find launchpad only after the function has run.
        def on_task(task: int, _: Iterator[Any]) -> Iterator[Any]:
            import os
            import pickle
            import sys

            from pyspark import BarrierTaskContext, SparkFiles

            sent_folder = SparkFiles.get(folder)
            is_sent = os.path.isdir(sent_folder) and sent_folder not in sys.path
            if is_sent and not os.path.isdir(project):
                sys.path.insert(0, sent_folder)
            sys.path += [p for p in path if p not in sys.path and os.path.isdir(p)]
            if is_sent and sent_folder not in sys.path:
                sys.path.append(sent_folder)
            from launchpad.launch.backends.spark import task_host

            gpus = BarrierTaskContext.get().resources().get("gpu")
            addresses = () if gpus is None else tuple(gpus.addresses)
            task_host.serve(pickle.loads(launcher), number, task, addresses)
            return iter(())

        _log.debug("submitting a job of %d tasks for %s", n_tasks, self._name)
        context = self._context
        context.setJobGroup(self._group, f"hosts of launchpad's program {self._name}")
        tasks = context.parallelize(range(n_tasks), n_tasks).barrier()
        tasks.mapPartitionsWithIndex(on_task).collect()


def reason(error: BaseException | None) -> str:
    """Return the line that matters in the error of a job, which comes from Java and has many lines."""
    if error is None:
        return "it has ended"
    java = getattr(error, "java_exception", None)
    text = str(error if java is None else java.getMessage())
    text = text.rpartition(" finished unsuccessfully.\n")[2]
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    if not lines:
        return type(error).__name__
    # In this case a traceback follows, and its last line gives the reason.
    if "PythonException" in lines[0]:
        unindented = [line for line in lines[1:] if not line.startswith((" ", "\t"))]
        return (unindented or lines)[-1].strip()
    return lines[0].strip()
