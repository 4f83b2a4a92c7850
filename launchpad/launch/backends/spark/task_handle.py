"""The launcher's handle of a worker's host in a task of Spark's."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from launchpad.errors import LaunchError
from launchpad.launch.backends.remote.host_handle import HostHandle
from launchpad.launch.backends.remote.node_connection import NodeGone
from launchpad.launch.backends.spark.job import HostJob


@dataclass(eq=False)
class TaskHandle(HostHandle):
    """A handle of one worker's host in a task of a job."""

    job: HostJob | None = None

    @property
    def task(self) -> int:
        assert self.job is not None
        return self.job.hosts[self.worker]

    def call(self, method: str, *arguments: Any, **options: Any) -> Future[Any]:
        assert self.job is not None
        return self.job.joined[self.task].call(self.worker, method, *arguments, **options)

    def post(self, method: str, *arguments: Any, **options: Any) -> None:
        assert self.job is not None
        self.job.joined[self.task].post(self.worker, method, *arguments, **options)

    @property
    def lease_of(self) -> object:
        assert self.job is not None
        return self.job.joined[self.task]

    def is_surely_dead(self, error: BaseException) -> bool:
        return not isinstance(error, NodeGone)

    def end(self) -> None:
        self.post("end")

    def describe_death(self, error: BaseException) -> str:
        """Return a sentence that names the task that died first, even if this one only ended with it."""
        job = self.job
        assert job is not None
        why = f": {job.why}" if job.why else ""
        if job.lost_task is None:
            return f"Spark has ended the job whose task was its host{why}"
        first = job.joined[job.lost_task].ready
        own = job.joined[self.task].ready
        executor = f"Spark executor {first.process} on {first.where.ip}"
        is_same = (own.process, own.where) == (first.process, first.where)
        if job.lost_task == self.task or (is_same and "ExecutorLost" in job.why):
            return f"its host, task {self.task} of {executor}, has died{why}"
        return (
            f"ended with its barrier stage, since task {job.lost_task} of {executor} has died{why}"
        )

    def describe_error(self, error: BaseException) -> str:
        return str(error) if isinstance(error, LaunchError) else f"{type(error).__name__}: {error}"
