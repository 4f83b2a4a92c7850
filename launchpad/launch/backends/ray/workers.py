"""The workers of one launch on a Ray cluster: their hosts are actors, in room that Ray has reserved.

When its actor dies, a worker gets a new actor, wherever Ray has room for its bundle group.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from launchpad import outcome
from launchpad.errors import LaunchError
from launchpad.launch.backends.launcher_info import LauncherInfo, versions
from launchpad.launch.backends.ray import cluster, feasibility, placement_group
from launchpad.launch.backends.ray.actor_handle import ActorHandle
from launchpad.launch.backends.ray.placement_group import Placement, bundle_groups_of
from launchpad.launch.backends.ray.worker_actor import WorkerActor
from launchpad.launch.backends.remote.host_handle import HostHandle
from launchpad.launch.backends.remote.worker_host import HostReady
from launchpad.launch.backends.remote.workers import HostedWorkers
from launchpad.launch.large_buffers import Openable
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.outcome import Outcome
from launchpad.runtime.events import Event, WorkerNote

_log = logging.getLogger("launchpad.ray")

_REPORT_AFTER_S = 1.0
"""Seconds after which a worker reports that it waits for room. If room is free, Ray gives it in less time."""

_SILENT_S = 300.0
"""Seconds for which workers that may be on any node are not placed on one that did not answer. By then, Ray
has given it up, or it was only slow."""

_AGAIN_S = 1.0
_MOST_TRIES = 90
"""How often a worker asks for another actor if Ray could not run the one before, and how long it waits in
between. Ray needs about a minute to notice that a node is dead."""

_WAITS_FOR_RAY = (
    "its room is on a node that did not answer. If that node is dead, it starts elsewhere once Ray has"
    " noticed that, which takes about a minute by default"
)

_MAX_CONCURRENCY = 1000
"""The number of calls that may wait at one actor. Only the call for its next update takes long."""


class RayWorkers(HostedWorkers):
    """The workers of one launch. The constructor connects to the cluster and reserves room.

    No user code runs yet.

    Raises:
        LaunchError: there is no cluster, or it can never hold this program. In the latter case, the text
            shows the arithmetic.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        run: RunDirectory,
        report: Callable[[Event], None],
        origin: LauncherInfo,
    ) -> None:
        super().__init__(plan, run, report, origin, "Ray cluster")
        self._objects: dict[Openable, Any] = {}
        self._tries = Counter[str]()
        # Nodes that did not answer. Until Ray has noticed that, it would place actors there.
        self._silent_nodes: set[str] = set()
        cluster.connect()
        try:
            self._here = HostReady(*cluster.here())
            groups = bundle_groups_of(plan.workers)
            nodes = cluster.nodes()
            refusal = feasibility.refusal(groups, nodes)
            if refusal:
                raise LaunchError(
                    f"program {plan.program!r} does not fit on the Ray cluster: {refusal}"
                )
            text = feasibility.unused_gpus(plan.workers, nodes)
            if text:
                report(WorkerNote(plan.workers[0].name, text))
            then = partial(self._do, self._on_placement_ready)
            self._placements: dict[str, Placement] = {}
            for placement in [Placement(group, then) for group in groups]:
                self._placements |= dict.fromkeys(placement.bundle_group.workers, placement)
            self._actor_class = cluster.load().remote(WorkerActor)
            self._actions.begin()
        except BaseException:
            cluster.release()
            raise

    def close(self) -> None:
        """End all actors, give the room back, and leave the cluster."""
        self._actions.end(self._close)
        cluster.release()

    def _close(self) -> None:
        self._close_hosts()
        self._objects.clear()
        # If the cluster is gone, nothing of this launch is left on it.
        with contextlib.suppress(Exception):
            cluster.check()
            for placement in set(self._placements.values()):
                cluster.load().util.remove_placement_group(placement.reserved)

    def _shared(self, buffer: Openable) -> Any:
        """Return an object of Ray's with the buffer. Each node keeps one copy of it."""
        if buffer not in self._objects:
            self._objects[buffer] = cluster.load().put(buffer)
        return self._objects[buffer]

    def _check(self) -> None:
        cluster.check()

    def _on_placement_ready(self, placement: Placement) -> None:
        _log.debug("Ray has reserved the room of group %s", placement.bundle_group.name)
        placement.is_ready = True
        self._start_waiting(placement.bundle_group.workers)

    def _find_host(self, worker: str, attempt: int) -> HostHandle | None:
        placement = self._placements.get(worker)
        if placement is not None and not placement.is_ready:
            for delay_s, gives_up in (_REPORT_AFTER_S, False), (placement_group.PENDING_S, True):
                self._call_later(
                    delay_s, self._on_still_waiting, worker, attempt, placement, gives_up
                )
            return None
        if placement is None:
            nodes = [node.id for node in cluster.nodes()] if self._silent_nodes else []
            options = placement_group.spread_options(self._silent_nodes, nodes)
        else:
            options = placement.options(worker)
            if self._silent_nodes and placement.node_of(worker) in self._silent_nodes:
                self._report(WorkerNote(worker, _WAITS_FOR_RAY))
        _log.debug("asking Ray for an actor for %s (attempt %d)", worker, attempt)
        actor_class = self._actor_class.options(max_concurrency=_MAX_CONCURRENCY, **options)
        return ActorHandle(worker, attempt, actor=actor_class.remote(versions()))

    def _on_still_waiting(
        self, worker: str, attempt: int, placement: Placement, gives_up: bool
    ) -> None:
        """Report what the worker waits for. With `gives_up`, end its attempt, since no room became free."""
        if worker not in self._waiting or self._alive[worker] != attempt:
            return
        free = cluster.load().available_resources()
        why = feasibility.shortage(placement.bundle_group, cluster.nodes(), free)
        if not gives_up:
            self._report(WorkerNote(worker, f"waiting for room: {why}"))
            return
        self._waiting.remove(worker)
        why = f"no room on the Ray cluster for {placement_group.PENDING_S:g} s: {why}"
        hint = "wait for the programs that have it now, or ask for less"
        self._report_end(Outcome(worker, outcome.FAILED, "start", attempt, why, hint=hint))

    def _on_host_died(self, handle: HostHandle, error: BaseException) -> None:
        """Have Ray end an actor that is dead or out of reach. Report the end, or start the worker again."""
        _log.debug("the actor of %s is dead or out of reach: %s", handle.worker, error)
        handle.end()
        placement = self._placements.get(handle.worker)
        if placement is not None and placement.is_ready and placement.is_lost():
            placement.wait()
        never_ran = handle.ready is None and "never ran" in str(error)
        if never_ran and self._tries[handle.worker] < _MOST_TRIES:
            # Ray did not know yet that the node was dead, and had no process there for the actor.
            self._tries[handle.worker] += 1
            _log.info("Ray could not run the actor of %s: asking for another one", handle.worker)
            del self._handles[handle.worker]
            self._waiting.add(handle.worker)
            self._call_later(_AGAIN_S, self._start_waiting, [handle.worker])
            return
        if handle.ready is not None and not handle.is_surely_dead(error):
            self._silent_nodes.add(handle.ready.node)
            self._call_later(_SILENT_S, self._silent_nodes.discard, handle.ready.node)
        self._report_lost_when_over(handle, error)
