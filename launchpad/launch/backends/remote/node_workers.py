"""The workers of one launch on nodes that launchpad fills itself, such as those of `ssh`.

A subclass connects with the nodes, and says when one is gone or has come back. A worker whose node is gone
gets a place on another node, or waits until there is room: until a node comes back, or another worker is
over. If a worker that was over is started again, it gets a place as at first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from launchpad import outcome
from launchpad.errors import LaunchError
from launchpad.launch.backends.remote.host_handle import HostHandle
from launchpad.launch.backends.remote.node_connection import NodeConnection
from launchpad.launch.backends.remote.node_handle import NodeHandle
from launchpad.launch.backends.remote.placement import NodeSupply, Room, indivisible
from launchpad.launch.backends.remote.workers import HostedWorkers
from launchpad.outcome import Outcome
from launchpad.runtime.commands import AnnounceGone, Command
from launchpad.runtime.events import WorkerNote

_log = logging.getLogger("launchpad.hosts")

_REPORT_AFTER_S = 1.0
_ROOM_S = 300.0
"""How long a worker waits for room, for example for its only host to come back, before its attempt fails."""


class NodeWorkers(HostedWorkers):
    """The workers of one launch on nodes. A subclass adds the nodes before the first worker is started."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._nodes: dict[str, NodeConnection] = {}
        self._over: set[str] = set()
        self._room = Room()
        self._units = {
            worker.name: unit for unit in indivisible(self._plan.workers) for worker in unit
        }

    def _place_all(self, nodes: Mapping[str, tuple[NodeConnection, NodeSupply]]) -> None:
        """Take these nodes, and give each worker a place on them.

        Raises:
            LaunchError: they don't have what the workers ask for; the text shows the arithmetic.
        """
        for name, (connection, supply) in nodes.items():
            self._add_node(name, connection, supply)
        try:
            self._room.place_all(self._plan.workers)
        except ValueError as error:
            raise LaunchError(f"program {self._plan.program!r} does not fit: {error}") from error

    def _add_node(self, name: str, connection: NodeConnection, supply: NodeSupply) -> None:
        self._nodes[name] = connection
        self._room.add(name, supply)

    # Actions, which are called in their own thread.

    def _on_node_gone(self, name: str, connection: NodeConnection) -> None:
        self._renewals.stop(connection)
        if self._nodes.get(name) is connection:
            _log.debug("host %s is gone", name)
            del self._nodes[name]
            self._room.remove(name)

    def _on_node_back(self, name: str, connection: NodeConnection, supply: NodeSupply) -> None:
        _log.info("host %s is back", name)
        self._add_node(name, connection, supply)
        self._fill_room()

    def _report_end(self, end: Outcome) -> None:
        super()._report_end(end)
        if end.kind == outcome.SUCCEEDED:
            self._release([end.worker])

    def _execute(self, command: Command) -> None:
        super()._execute(command)
        if isinstance(command, AnnounceGone) and not command.to:
            self._release([w for w, why in command.gone.items() if why and w not in self._alive])

    def _release(self, workers: Iterable[str]) -> None:
        """Give the room of workers that are over to those that wait."""
        placed = [worker for worker in workers if self._room.place_of(worker) is not None]
        for worker in placed:
            self._over.add(worker)
            handle = self._handles.pop(worker, None)
            if handle is not None:
                handle.end()
            self._room.release(worker)
        if placed:
            self._fill_room()

    def _fill_room(self) -> None:
        """Start workers that wait, as far as there is room."""
        for worker in sorted(self._waiting):
            if self._has_place(worker):
                self._start_waiting([worker])

    def _has_place(self, worker: str) -> bool:
        """Return True if a worker has a place. Give it one, with the others of its unit, if there is room."""
        if self._room.place_of(worker) is not None:
            return True
        unit = [other for other in self._units[worker] if other.name not in self._over]
        return self._room.place([w for w in unit if self._room.place_of(w.name) is None])

    def _check(self) -> None:
        """Do nothing: the launch can go on as long as it has a node."""

    def _find_host(self, worker: str, attempt: int) -> HostHandle | None:
        self._over.discard(worker)
        place = self._room.place_of(worker) if self._has_place(worker) else None
        if place is None:
            self._call_later(_REPORT_AFTER_S, self._on_still_waiting, worker, attempt, False)
            self._call_later(_ROOM_S, self._on_still_waiting, worker, attempt, True)
            return None
        _log.debug("%s (attempt %d) is placed on host %s", worker, attempt, place.node)
        connection = self._nodes[place.node]
        return NodeHandle(worker, attempt, gpus=place.gpus, node=place.node, connection=connection)

    def _on_still_waiting(self, worker: str, attempt: int, gives_up: bool) -> None:
        """Report that a worker waits for room. With `gives_up`, end its attempt."""
        if worker not in self._waiting or self._alive[worker] != attempt:
            return
        asked = self._plan.worker(worker).resources.asked() or "any"
        there = f"hosts that answer: {', '.join(self._nodes) or 'none'}"
        if not gives_up:
            self._report(WorkerNote(worker, f"waiting for room ({asked}); {there}"))
            return
        self._waiting.remove(worker)
        why = f"no host has had room for it for {_ROOM_S:g} s ({asked}); {there}"
        hint = "have a host come back, or give more hosts"
        self._report_end(Outcome(worker, outcome.FAILED, "start", attempt, why, hint=hint))
