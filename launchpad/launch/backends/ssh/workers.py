"""The workers of one launch on hosts that `ssh` reaches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from launchpad.errors import LaunchError
from launchpad.launch.backends.launcher_info import LauncherInfo, folder_of_script
from launchpad.launch.backends.remote import reachability
from launchpad.launch.backends.remote.lease import ENDED_AFTER_S
from launchpad.launch.backends.remote.node_host import node
from launchpad.launch.backends.remote.node_workers import NodeWorkers
from launchpad.launch.backends.remote.worker_host import HostReady
from launchpad.launch.backends.ssh import connection
from launchpad.launch.backends.ssh.connection import Connected, Sent, SshConnections
from launchpad.launch.backends.ssh.hosts import Host
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.runtime.events import Event


class SshWorkers(NodeWorkers):
    """The workers of one launch. The constructor connects with all hosts. No user code runs yet.

    Raises:
        LaunchError: a host can't be used, two hosts can't reach each other, or the program doesn't fit.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        run: RunDirectory,
        report: Callable[[Event], None],
        hosts: Sequence[Host],
    ) -> None:
        super().__init__(plan, run, report, LauncherInfo.here(), "ssh hosts")
        connection.check_ssh()
        needs_gpus = any(worker.resources.gpus for worker in plan.workers)
        sent = Sent(connection.archive(folder_of_script()), needs_gpus, run.run_id)
        self._connections = SshConnections(
            sent,
            run.logs,
            lambda connected: self._renewals.begin(
                connected.node,
                connected.node.renew,
                lambda: self._connections.end(
                    connected, f"it has not answered for {ENDED_AFTER_S:g} s"
                ),
            ),
            lambda lost: self._do(self._on_node_gone, str(lost.host), lost.node),
            lambda back: self._do(self._on_node_back, str(back.host), back.node, back.ready.supply),
        )
        with contextlib.ExitStack() as undo:
            undo.callback(self._renewals.close)
            undo.callback(self._connections.close)
            connected = self._connections.connect(hosts)
            _check_distinct(connected)
            _check_pairs(connected)
            here = node()
            ip = next((c.ready.where.ip for c in connected if c.ready.where.node == here), "")
            self._here = HostReady(here, ip)
            self._place_all({str(c.host): (c.node, c.ready.supply) for c in connected})
            self._actions.begin()
            undo.pop_all()

    def close(self) -> None:
        """End all workers, all node processes and all connections."""
        self._actions.end(self._close_hosts)
        self._connections.close()


def _check_distinct(connected: Sequence[Connected]) -> None:
    """Raise LaunchError if two names lead to one host, because its CPUs and memory would count twice."""
    names: dict[str, Host] = {}
    for host in connected:
        other = names.setdefault(host.ready.where.node, host.host)
        if other is not host.host:
            own_name = host.ready.where.node.partition("/")[0]
            raise LaunchError(
                f"hosts: {str(other)!r} and {str(host.host)!r} are the same host, which calls itself"
                f" {own_name!r}: give it once"
            )


def _check_pairs(connected: Sequence[Connected]) -> None:
    """Raise LaunchError if a host can't reach another one, or is lost; the text names them."""
    if len(connected) < 2:
        return
    texts = reachability.check_all_pairs({str(c.host): c.node for c in connected})
    if texts:
        raise LaunchError(reachability.remedy(texts))
