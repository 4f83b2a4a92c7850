"""The workers of one launch on a Spark cluster: their hosts are the tasks of a barrier job.

    start ──▶ wait for slots ──▶ submit ──▶ tasks join ──▶ all have: workers start
                                    ▲            └── too late: those that wait fail, and the absent are named
                                    │
              next start ── a new job ◀── a task is lost: Spark ends the stage, so all workers are lost

Spark doesn't retry a barrier stage that has the job's result. Launchpad doesn't ask it to, either: the
workers' own policies decide which of them restart, and how often. The first worker that restarts has a new
job submitted.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Callable
from typing import Any

from launchpad import outcome
from launchpad.errors import LaunchError
from launchpad.launch.backends.launcher_info import LauncherInfo
from launchpad.launch.backends.remote.host_handle import HostHandle
from launchpad.launch.backends.remote.join_server import JoinServer
from launchpad.launch.backends.remote.lease import ENDED_AFTER_S
from launchpad.launch.backends.remote.node_connection import NodeConnection, NodeGone
from launchpad.launch.backends.remote.node_host import node, own_ip
from launchpad.launch.backends.remote.placement import units
from launchpad.launch.backends.remote.worker_host import HostReady
from launchpad.launch.backends.remote.workers import ANSWER_S, HostedWorkers
from launchpad.launch.backends.spark import placement, session
from launchpad.launch.backends.spark.job import HostJob, SlotsWanted, reason
from launchpad.launch.backends.spark.task_handle import TaskHandle
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.outcome import Outcome
from launchpad.runtime.events import Event, WorkerNote

_REPORT_AFTER_S = 10.0
"""Seconds after which a worker reports that it waits for hosts. Spark starts hosts in less time if it can."""

_REASON_S = 10.0
"""How long Spark may take to say why a task is gone, and the other tasks to end."""

_NO_HOST = "192.0.2.1"
"""An address that no host has. The route to it is the route to other hosts."""

_MORE = "give it more slots, or the program fewer hosts (hosts=…); "
_MORE_ALONE = "give it more slots, or have fewer workers ask for CPUs or GPUs; "


class SparkWorkers(HostedWorkers):
    """The workers of one launch. The constructor connects to a SparkContext. No user code runs yet.

    Args:
        hosts: The most tasks to take. None means as many as the workers need, or all slots if there are
            fewer.
        timeout_s: How long the tasks may take until all have joined.

    Raises:
        LaunchError: there is no Spark, or it cannot give a group what the group asks for.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        run: RunDirectory,
        report: Callable[[Event], None],
        hosts: int | None,
        timeout_s: float,
    ) -> None:
        super().__init__(plan, run, report, LauncherInfo.here(), "SparkContext")
        self._timeout_s = timeout_s
        self._n_alone = len(placement.alone(plan.workers))
        self._most = min(len(units(plan.workers)), hosts or len(plan.workers))
        self._job: HostJob | None = None
        self._jobs: list[HostJob] = []
        self._disconnected: list[tuple[TaskHandle, BaseException]] = []
        with contextlib.ExitStack() as undo:
            self._context = session.connect()
            undo.callback(session.release)
            conf = self._context.getConf()
            _check_resources(plan, hosts, conf)
            ip = _reachable_ip(conf.get("spark.driver.host").strip("[]"), self._context.master)
            self._here = HostReady(node(), ip)
            self._server = JoinServer(ip, self._keys, self._on_join, self._on_gone)
            undo.callback(self._server.close)
            self._actions.begin()
            self._undo = undo.pop_all()

    def close(self) -> None:
        """End all hosts and the job, and leave Spark as it was."""
        self._actions.end(self._close)
        for job in self._jobs:
            job.close(ANSWER_S)
        self._undo.close()

    def _close(self) -> None:
        self._close_hosts()
        for job in self._jobs:
            job.end_tasks()

    def _check(self) -> None:
        session.check(self._context)

    # Called by the server, in its threads.

    def _on_join(self, key: tuple[int, int], connection: NodeConnection) -> bool:
        number, task = key
        job = self._jobs[number]
        if job.is_cancelled:
            return False
        self._do(self._on_joined, job, task, connection)
        return True

    def _on_gone(self, key: tuple[int, int], connection: NodeConnection) -> None:
        number, task = key
        self._do(self._lose, self._jobs[number], task)

    # The job, and its tasks.

    def _find_host(self, worker: str, attempt: int) -> HostHandle | None:
        if self._job is None:
            number = len(self._jobs)
            before = next((job.n_tasks for job in reversed(self._jobs) if job.n_tasks), 0)
            self._job = HostJob(
                self._context,
                self._run.run_id,
                number,
                SlotsWanted(self._most, max(1, self._n_alone), before),
                self._server.address,
                lambda job, n_tasks: self._do(self._on_counted, job, n_tasks),
                lambda job, error: self._do(self._on_job_ended, job, error),
            )
            self._jobs.append(self._job)
            self._call_later(_REPORT_AFTER_S, self._on_still_waiting, self._job, False)
            self._call_later(self._timeout_s, self._on_still_waiting, self._job, True)
        if not self._job.is_ready:
            return None
        return TaskHandle(worker, attempt, job=self._job)

    def _on_counted(self, job: HostJob, n_tasks: int) -> None:
        try:
            job.hosts = placement.place(self._plan.workers, n_tasks)
            job.n_tasks = n_tasks
        except ValueError as error:
            self._give_up(job, f"no host for all: {error}", _MORE_ALONE)

    def _on_joined(self, job: HostJob, task: int, connection: NodeConnection) -> None:
        job.add(task, connection)
        self._renewals.begin(
            connection,
            connection.renew,
            lambda: connection.on_gone(NodeGone(f"it has not answered for {ENDED_AFTER_S:g} s")),
        )
        if job is self._job and job.is_ready:
            self._start_waiting(list(job.hosts))

    def _on_still_waiting(self, job: HostJob, gives_up: bool) -> None:
        """Report which hosts have not joined. With `gives_up`, end the job and what waits for it."""
        if job is not self._job or job.is_ready:
            return
        n_slots = session.slots(self._context)
        why = f"{_absent(job)}; {self._slots(n_slots)}" if job.n_tasks else self._not_begun(n_slots)
        if gives_up:
            hint = _MORE_ALONE if n_slots < self._n_alone else _MORE
            self._give_up(job, f"after {self._timeout_s:g} s {why}", hint)
        elif self._waiting:
            self._report(WorkerNote(min(self._waiting), f"waiting for hosts: {why}"))

    def _slots(self, n_slots: int) -> str:
        n_running = session.running_tasks(self._context)
        return f"of the Spark application's {n_slots} slots {n_running} are in use"

    def _not_begun(self, n_slots: int) -> str:
        """Return why Spark has not begun the job yet."""
        if n_slots == 0:
            why = "no executor has registered yet"
        elif n_slots < self._n_alone:
            workers = placement.want_one_each(self._plan.workers)
            why = f"{workers}, and the Spark application has {n_slots} slots"
        else:
            why = "executors are still coming, or are being sent the code"
        return f"no host has joined: {why}"

    def _give_up(self, job: HostJob, why: str, hint: str = "") -> None:
        """End a job that is incomplete, and the attempts of workers that wait for it."""
        self._job = None
        job.is_lost = True
        job.cancel()
        hint += session.look_at(self._context)
        for worker in sorted(self._waiting):
            end = Outcome(worker, outcome.FAILED, "start", self._alive[worker], why, hint=hint)
            self._report_end(end)
        self._waiting.clear()

    # The job's end.

    def _on_host_died(self, handle: HostHandle, error: BaseException) -> None:
        """End the whole job if the task is gone. After any other error, end only this worker's host."""
        assert isinstance(handle, TaskHandle)
        assert handle.job is not None
        if not isinstance(error, NodeGone):
            super()._on_host_died(handle, error)
            return
        self._disconnected.append((handle, error))
        self._lose(handle.job, handle.task)
        self._report_disconnected(handle.job)

    def _kill_if_running(self, handle: HostHandle, attempt: int) -> None:
        """Ask the host to end. If it doesn't answer, have Spark kill its task."""
        super()._kill_if_running(handle, attempt)
        self._call_later(ANSWER_S, self._give_up_task, handle, attempt)

    def _give_up_task(self, handle: HostHandle, attempt: int) -> None:
        if handle.attempt != attempt or self._handles.get(handle.worker) is not handle:
            return
        assert isinstance(handle, TaskHandle)
        assert handle.job is not None
        handle.job.why = handle.job.why or f"it does not answer for {2 * ANSWER_S:g} s"
        self._on_host_died(handle, NodeGone(handle.job.why))
        handle.job.cancel()

    def _lose(self, job: HostJob, task: int | None) -> None:
        """End a job that has lost a task. Spark ends the other tasks, and their workers are reported then."""
        if job.is_lost:
            return
        # If the job is incomplete, workers still wait for it.
        if job is self._job and job.is_complete:
            self._job = None
        job.is_lost = True
        job.lost_task = task
        job.end_tasks()
        self._call_later(_REASON_S, self._on_no_answer, job)

    def _on_job_ended(self, job: HostJob, error: BaseException | None) -> None:
        job.has_ended = True
        job.why = job.why or reason(error)
        if job is self._job and not job.is_ready:
            by = "" if isinstance(error, LaunchError) else "Spark has ended the job: "
            self._give_up(job, f"could not be given a host: {by}{job.why}")
        self._lose(job, None)
        self._report_disconnected(job)

    def _on_no_answer(self, job: HostJob) -> None:
        """Stop waiting for a lost job whose end Spark doesn't report, or whose tasks are out of reach."""
        job.has_ended = True
        job.cancel()
        disconnected = [handle for handle, _ in self._disconnected]
        silent = NodeGone(f"it does not answer for {_REASON_S:g} s")
        for handle in self._handles.values():
            assert isinstance(handle, TaskHandle)
            if handle.job is job and handle not in disconnected:
                self._disconnected.append((handle, silent))
        self._report_disconnected(job)

    def _report_disconnected(self, job: HostJob) -> None:
        """Report the workers whose tasks are gone, once the reason is known."""
        if not job.has_ended:
            return
        disconnected = self._disconnected
        self._disconnected = []
        for handle, error in disconnected:
            if handle.job is not job:
                self._disconnected.append((handle, error))
            elif self._handles.get(handle.worker) is handle:
                self._report_lost_when_over(handle, error)


def _check_resources(plan: LaunchPlan, hosts: int | None, conf: Any) -> None:
    """Raise LaunchError if tasks of this application can never be hosts of these workers."""
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        raise LaunchError(
            "launch type 'spark' needs all its hosts at once, which Spark refuses together with dynamic"
            " allocation: set spark.dynamicAllocation.enabled=false"
        )
    cpus = float(conf.get("spark.task.cpus", "1"))
    gpus = float(conf.get("spark.task.resource.gpu.amount", "0"))
    refusal = placement.refusal(plan.workers, cpus, gpus)
    n_alone = len(placement.alone(plan.workers))
    if not refusal and hosts is not None and hosts < n_alone:
        workers = placement.want_one_each(plan.workers)
        refusal = f"hosts={hosts}, and {workers}: hosts={n_alone} or more"
    if refusal:
        raise LaunchError(f"program {plan.program!r} cannot run on this Spark: {refusal}")


def _reachable_ip(driver: str, master: str) -> str:
    """Return an address of spark.driver.host that executors reach. /etc/hosts may map its name to 127.0.1.1.

    Raises:
        LaunchError: the name has no address here.
    """
    try:
        ips = [str(entry[4][0]) for entry in socket.getaddrinfo(driver, None)]
        external = [ip for ip in ips if not ipaddress.ip_address(ip).is_loopback]
        if external:
            return external[0]
        return ips[0] if master.startswith("local") else own_ip(_NO_HOST)
    except OSError as error:
        raise LaunchError(
            f"no address is known of spark.driver.host={driver!r} ({error}): set it to an address of this"
            " host that executors reach"
        ) from error


def _absent(job: HostJob) -> str:
    """Return text like `1 of 2 hosts have joined; absent: task 1 (for player-1, player-3)`."""
    parts = []
    for task in sorted(set(range(job.n_tasks)) - set(job.joined)):
        workers = ", ".join(worker for worker, host in job.hosts.items() if host == task)
        parts.append(f"task {task} (for {workers})")
    joined = f"{len(job.joined)} of {job.n_tasks} hosts have joined"
    return f"{joined}; absent: {', '.join(parts)}"
