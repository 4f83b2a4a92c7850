"""The workers of one launch on the nodes of a Slurm job.

start ──▶ submit ──▶ pending ──▶ node processes join ──▶ all have: workers are placed, and start
                        └── cancelled, refused: those that wait fail, with Slurm's reason
a node is gone ──▶ its workers are lost, and start again on other nodes of the job
SIGTERM, or the time limit is near ──▶ the program is stopped in order
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any

from launchpad import outcome
from launchpad.courier import formatting
from launchpad.errors import LaunchError
from launchpad.launch.backends.launcher_info import LauncherInfo
from launchpad.launch.backends.remote.host_handle import HostHandle
from launchpad.launch.backends.remote.join_server import JoinServer
from launchpad.launch.backends.remote.lease import ENDED_AFTER_S
from launchpad.launch.backends.remote.node_connection import NodeConnection, NodeGone
from launchpad.launch.backends.remote.node_host import node, own_ip
from launchpad.launch.backends.remote.node_workers import NodeWorkers
from launchpad.launch.backends.remote.worker_host import HostReady
from launchpad.launch.backends.slurm import job, node_process, script, squeue
from launchpad.launch.backends.slurm.job import BatchJob, OwnJob, SlurmJob
from launchpad.launch.backends.slurm.settings import SlurmSettings
from launchpad.launch.backends.slurm.squeue import JobState
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.outcome import Outcome
from launchpad.runtime.events import Event, JobEnding, WorkerNote

_log = logging.getLogger("launchpad.slurm")

_NOTICE_S = 60.0
"""Seconds before the time limit when the program is asked to stop; a quarter of the limit if that is less."""

_JOIN_S = 120.0
"""How long the nodes of a job that runs may take until all have joined."""

_NEAR_LIMIT_S = 30.0
"""Seconds before that, from which on the job's state is asked for more often."""

_NO_HOST = "192.0.2.1"
"""An address that no host has. The route to it is the route to other hosts."""


class SlurmWorkers(NodeWorkers):
    """The workers of one launch. The constructor submits a job, or starts a step, and doesn't wait for nodes.

    Raises:
        LaunchError: this host has no Slurm, or Slurm refuses the job.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        run: RunDirectory,
        report: Callable[[Event], None],
        settings: SlurmSettings,
    ) -> None:
        super().__init__(plan, run, report, LauncherInfo.here(), "Slurm job")
        self._settings = settings
        self._is_complete = False
        self._is_ending = False
        self._has_begun = False
        self._requeues = False
        own = job.own_number()
        squeue.check_commands(plan.launch_type, ["squeue", "srun" if own else "sbatch", "scancel"])
        if settings.requeue and not own:
            raise LaunchError(
                "requeue=True: only a script that runs in the job can have the job requeued. Submit the"
                " script itself with `sbatch --requeue`"
            )
        self._n_nodes = script.number_of_nodes(settings)
        self._here = HostReady(node(), _own_address(_hosts_of_job() if own else _controllers()))
        with contextlib.ExitStack() as undo:
            self._server = JoinServer(
                self._here.ip,
                self._keys,
                self._on_join,
                lambda key, connection: self._do(self._on_left, connection),
            )
            undo.callback(self._server.close)
            self._job = self._make_job(own)
            self._job.begin()
            if own:
                self._do(self._expect_nodes)
            self._actions.begin()
            undo.pop_all()

    def _make_job(self, own: str) -> SlurmJob:
        needs_gpus = any(worker.resources.gpus for worker in self._plan.workers)
        join = node_process.header(self._server.address, self._launcher.path, needs_gpus=needs_gpus)
        log = self._run.logs / "slurm-job.log"

        def on_state(state: JobState) -> None:
            self._do(self._on_state, state)

        def on_end(why: str) -> None:
            self._do(self._on_job_ended, why)

        if own:
            return OwnJob(own, self._n_nodes, join, log, on_state, on_end)
        options = script.job_options(self._plan, self._settings)
        return BatchJob(
            options, self._n_nodes, script.folder(self._run.run_id), join, log, on_state, on_end
        )

    def close(self) -> None:
        """End all workers, all node processes and the job."""
        self._actions.end(self._close_nodes)
        self._job.close(was_asked=self._is_complete)
        self._server.close()
        if self._requeues:
            why = squeue.request("scontrol", "requeue", self._job.number)
            if why:
                _log.warning("job %s could not be requeued: %s", self._job.number, why)

    def _on_join(self, key: object, connection: NodeConnection) -> bool:
        """Accept each node, in a thread of the server."""
        self._do(self._on_joined, connection)
        return True

    # Actions, which are called in their own thread.

    def _close_nodes(self) -> None:
        self._close_hosts()
        for connection in self._nodes.values():
            connection.end()

    def _find_host(self, worker: str, attempt: int) -> HostHandle | None:
        return super()._find_host(worker, attempt) if self._is_complete else None

    def _on_joined(self, connection: NodeConnection) -> None:
        # Slurm may not have said that the job runs, and may never do so.
        self._expect_nodes()
        ready = connection.ready
        _log.debug("node %s has joined: %s", ready.process, ready.supply)
        if self._broken:
            connection.end()
            return
        self._renewals.begin(
            connection, connection.renew, partial(self._do, self._on_silent_node, connection)
        )
        self._add_node(ready.process, connection, ready.supply)
        ended = connection.call("", node_process.TERMINATED)
        ended.add_done_callback(lambda future: self._do(self._on_terminated, ready.process, future))
        if self._is_complete or len(self._nodes) < self._n_nodes:
            return
        self._is_complete = True
        self._job.is_quick = False
        try:
            self._room.place_all(self._plan.workers)
        except ValueError as error:
            self._fail_waiting(f"program {self._plan.program!r} does not fit: {error}")
            return
        self._start_waiting(sorted(self._waiting))

    def _on_silent_node(self, connection: NodeConnection) -> None:
        connection.on_gone(NodeGone(f"it has not answered for {ENDED_AFTER_S:g} s"))
        self._on_left(connection)

    def _on_left(self, connection: NodeConnection) -> None:
        self._on_node_gone(connection.ready.process, connection)

    def _on_state(self, state: JobState) -> None:
        _log.debug("job %s is %s", self._job.number, state)
        worker = min(self._alive, default=self._plan.workers[0].name)
        if state.state == "PENDING":
            self._report(
                WorkerNote(worker, f"waiting for Slurm: job {self._job.number} is {state}")
            )
        if state.state == "RUNNING":
            self._expect_nodes()
        if state.left_s is None:
            return
        notice_s = min(_NOTICE_S, (state.limit_s or _NOTICE_S) / 4)
        if state.left_s <= notice_s:
            limit = formatting.seconds(state.limit_s or 0.0)
            self._end_program(f"is at its time limit of {limit}", may_requeue=True)
        elif self._is_complete:
            self._job.is_quick = state.left_s - notice_s < _NEAR_LIMIT_S

    def _expect_nodes(self) -> None:
        """Limit the time until all nodes have joined, because the job runs."""
        if not self._has_begun:
            self._has_begun = True
            self._call_later(_JOIN_S, self._on_join_deadline)

    def _on_join_deadline(self) -> None:
        """Fail the launch if some nodes have not joined, although the job runs."""
        if self._is_complete or self._broken:
            return
        names = ", ".join(sorted(self._nodes)) or "none"
        n_joined = f"{len(self._nodes)} of the {self._n_nodes} nodes"
        where = self._server.address.where
        self._fail_waiting(
            f"{n_joined} of Slurm job {self._job.number} have joined within {_JOIN_S:g} s ({names}). Do all"
            f" of them share {sys.executable}, and reach {where}?"
        )

    def _on_terminated(self, name: str, future: Future[Any]) -> None:
        if future.exception() is None:
            self._end_program(
                f"is being ended: Slurm has sent SIGTERM to {name}", may_requeue=False
            )

    def _end_program(self, why: str, *, may_requeue: bool) -> None:
        """Have the program stop in order, because the job will end."""
        worker = min(self._alive, default=self._plan.workers[0].name)
        if self._is_ending:
            return
        self._is_ending = True
        text = f"Slurm job {self._job.number} {why}"
        if may_requeue and self._settings.requeue:
            self._requeues = True
            text += "; it is requeued, and goes on in about 2 minutes at the earliest"
        self._report(JobEnding(worker, text))

    def _on_job_ended(self, why: str) -> None:
        """Fail all workers that wait. Those that run are reported when their connections have ended."""
        if self._broken:
            return
        self._fail_waiting(f"Slurm job {self._job.number} has ended: {why}")

    def _fail_waiting(self, why: str) -> None:
        """End all attempts that have no host, and refuse later ones."""
        self._broken = why
        lines = self._job.last_lines()
        for worker in sorted(self._waiting):
            attempt = self._alive[worker]
            end = Outcome(
                worker, outcome.FAILED, "start", attempt, why, last_lines=lines, may_restart=False
            )
            self._report_end(end)
        self._waiting.clear()


def _hosts_of_job() -> list[str]:
    """Return the other hosts of the job in which this process runs."""
    names = squeue.lines_of("scontrol", "show", "hostnames")
    return [name for name in names if name != os.environ.get("SLURMD_NODENAME")]


def _controllers() -> list[str]:
    """Return the hosts of Slurm's controllers. This host and the nodes both reach them."""
    lines = squeue.lines_of("scontrol", "show", "config")
    values = [line.partition("=")[2] for line in lines if line.startswith("SlurmctldHost")]
    return [value.partition("(")[0].strip() for value in values]


def _own_address(hosts: Iterable[str]) -> str:
    """Return the address of this host in the network of other hosts.

    Args:
        hosts: Hosts of that network, as far as they are known.
    """
    for host in (*hosts, socket.gethostname(), _NO_HOST):
        with contextlib.suppress(OSError):
            ip = own_ip(str(socket.getaddrinfo(host, None)[0][4][0]))
            if not ipaddress.ip_address(ip).is_loopback:
                return ip
    return "127.0.0.1"
