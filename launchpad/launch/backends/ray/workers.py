"""The workers of one launch on a Ray cluster.

    supervisor ── start, ask, kill … ──▶ actions, in one thread ── Ray calls ──▶ outposts, one for each worker
    supervisor ◀── reports ───────────────────┘ ◀── news ───────────────┘

Everything happens in that thread, one thing after the other: commands, what outposts say, what they die of. A
dead outpost, and so a dead node, is one more way for a worker to end; started again, it gets a new one,
wherever Ray has room for its gang.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from launchpad import outcome
from launchpad.errors import LaunchError
from launchpad.events import Bound, Ended, Event, ProcessStarted, WorkerNote
from launchpad.launch.backends.action_thread import Actions
from launchpad.launch.backends.address_table import AddressTable, LocalAddressView
from launchpad.launch.backends.backend import Workers
from launchpad.launch.backends.launch_origin import LauncherInfo, RunSecrets, versions
from launchpad.launch.backends.ray import cluster, feasibility, placement_group
from launchpad.launch.backends.ray.actor_handle import ActorHandle
from launchpad.launch.backends.ray.bundles import bundle_groups_of
from launchpad.launch.backends.ray.messages import ActorReady, ActorUpdate, WorkerSetup
from launchpad.launch.backends.ray.placement_group import Placement
from launchpad.launch.backends.ray.worker_actor import WorkerActor
from launchpad.launch.logs.log_writer import LogWriter
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.outcome import Outcome

_ANSWER_S = 5.0
"""How long an outpost may take for what it does at once, before its node is taken for lost."""

_REPORT_AFTER_S = 1.0
"""Room that is there takes Ray less to give."""

_AT_ONCE = 1000
"""Calls of one outpost that may wait side by side: there is one for its news, others take no time."""


class RayWorkers(Workers):
    """One launch. Connects to the cluster and reserves room; nothing of the user's runs yet.

    Raises:
        LaunchError: there is no cluster, or it can never hold this program: then with the arithmetic.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        run: RunDirectory,
        report: Callable[[Event], None],
        origin: LauncherInfo,
    ) -> None:
        self._plan, self._run, self._report, self._origin = plan, run, report, origin
        self._handles: dict[str, ActorHandle] = {}
        self._waiting: set[str] = set()
        self._alive: dict[str, int] = {}
        self._gone: dict[str, str] = {}
        self._places = AddressTable()
        self._skips_grace = False
        self._broken = ""
        self._actions = Actions("launchpad-outposts", self._collapse)
        self._keys = RunSecrets.of(run.scope, plan.launch_type.removeprefix("test_"))
        self._view = LocalAddressView(self._keys)
        cluster.connect()
        try:
            self._node, self._ip = cluster.here()
            self._placements = self._reserve()
            self._actor_class = cluster.load().remote(WorkerActor)
            self._actions.begin()
        except BaseException:
            cluster.release()
            raise

    def start(self, worker: str, attempt: int) -> None:
        """Starts it at its outpost; makes one if there is none."""
        self._do(self._start, worker, attempt)

    def request_stop(self, worker: str, *, restarts: bool = False) -> None:
        """Tells it."""
        self._do(self._ask, worker, restarts)

    def kill(self, worker: str) -> None:
        """Kills its process, and its actor if that does not answer."""
        self._do(self._kill, worker)

    def skip_grace(self) -> None:
        """For all kills to come."""
        self._skips_grace = True

    def announce_gone(self, worker: str, why: str) -> None:
        """Tells all."""
        self._do(self._announce_gone, worker, why)

    def places(self) -> Mapping[str, str]:
        """As this process sees them."""
        return self._view.places

    def stacks(self, worker: str) -> str:
        """What faulthandler writes in its process."""
        handle = self._handles.get(worker)
        if handle is None or handle.ready is None:
            return ""
        try:
            return str(cluster.load().get(handle.actor.stacks.remote(), timeout=_ANSWER_S))
        except Exception as error:
            return f"({worker} does not answer: {error})\n"

    def close(self) -> None:
        """Ends all outposts, gives the room back, and leaves the cluster."""
        self._actions.end(self._close)
        cluster.release()

    # The thread.

    def _do(self, action: Callable[..., object], *arguments: Any) -> None:
        self._actions.do(self._act, action, *arguments)

    def _call_later(self, delay_s: float, action: Callable[..., object], *arguments: Any) -> None:
        self._actions.call_later(delay_s, self._act, action, *arguments)

    def _act(self, action: Callable[..., object], *arguments: Any) -> None:
        if not self._broken:
            cluster.check()
        action(*arguments)

    def _collapse(self, error: Exception) -> None:
        """Without its cluster the launch has no workers any more; nor will it get others."""
        self._broken = f"the Ray cluster cannot be used any more: {type(error).__name__}: {error}"
        handles, self._handles = self._handles, {}
        self._waiting.clear()
        for handle in handles.values():
            handle.close_log()
            with contextlib.suppress(Exception):  # if it is not the cluster that is gone
                cluster.check()
                handle.end()
        for worker, attempt in list(self._alive.items()):
            ran = worker in handles and handles[worker].ready is not None
            kind, phase = (outcome.LOST, "run") if ran else (outcome.FAILED, "start")
            self._report_end(Outcome(worker, kind, phase, attempt, self._broken))

    def _report_end(self, ended: Outcome) -> None:
        self._alive.pop(ended.worker, None)
        self._report(Ended(ended))

    # Room.

    def _reserve(self) -> dict[str, Placement]:
        """Worker → the room of its gang."""
        bundle_groups = bundle_groups_of(self._plan.workers)
        refused = feasibility.refusal(bundle_groups, cluster.nodes()) if bundle_groups else ""
        if refused:
            raise LaunchError(
                f"program {self._plan.program!r} does not fit on the Ray cluster: {refused}"
            )
        placements = [
            Placement(bundle_group, lambda placed: self._do(self._on_placement_ready, placed))
            for bundle_group in bundle_groups
        ]
        return {worker: placed for placed in placements for worker in placed.bundle_group.workers}

    def _on_placement_ready(self, placed: Placement) -> None:
        placed.is_ready = True
        for worker in placed.bundle_group.workers:
            if worker in self._waiting:
                self._waiting.remove(worker)
                self._start(worker, self._alive[worker])

    def _wait_for_placement(self, worker: str, attempt: int, placed: Placement) -> None:
        self._waiting.add(worker)
        self._call_later(_REPORT_AFTER_S, self._report_waiting, worker, placed)
        self._call_later(placement_group.PENDING_S, self._give_up, worker, attempt, placed)

    def _report_waiting(self, worker: str, placed: Placement) -> None:
        if worker in self._waiting:
            self._note(worker, f"waiting for room: {placed.why_not()}")

    def _give_up(self, worker: str, attempt: int, placed: Placement) -> None:
        """Nobody has left that room."""
        if worker not in self._waiting or self._alive[worker] != attempt:
            return
        self._waiting.remove(worker)
        why = f"no room on the Ray cluster for {placement_group.PENDING_S:g} s: {placed.why_not()}"
        hint = "wait for the programs that have it now, or ask for less"
        self._report_end(Outcome(worker, outcome.FAILED, "start", attempt, why, hint=hint))

    # Commands.

    def _start(self, worker: str, attempt: int) -> None:
        self._alive[worker] = attempt
        placed = self._placements.get(worker)
        handle = self._handles.get(worker)
        if self._broken:
            self._report_end(Outcome(worker, outcome.FAILED, "start", attempt, self._broken))
        elif handle is not None:
            handle.attempt, handle.killed = attempt, False
            self._begin(handle)
        elif placed is not None and not placed.is_ready:
            self._wait_for_placement(worker, attempt, placed)
        else:
            self._open(ActorHandle(worker, self._new_actor(worker), attempt))

    def _new_actor(self, worker: str) -> Any:
        placed = self._placements.get(worker)
        options = placed.options(worker) if placed is not None else placement_group.free_options()
        return self._actor_class.options(max_concurrency=_AT_ONCE, **options).remote(versions())

    def _open(self, handle: ActorHandle) -> None:
        self._handles[handle.worker] = handle
        setup = WorkerSetup(
            program=self._plan.program,
            launch_type=self._plan.launch_type,
            worker=self._plan.worker(handle.worker),
            origin=self._origin,
            state=str(self._run.state(handle.worker)),
        )
        self._call_actor(handle, "open", self._on_opened, setup, self._keys)

    def _begin(self, handle: ActorHandle) -> None:
        """Starts the attempt, if the outpost is ready; else that is done when it is."""
        if handle.ready is None:
            return
        log = self._run.log(handle.worker, handle.attempt)
        handle.log = LogWriter(log, self._run.rotation, partial(self._note, handle.worker))
        handle.send("start", handle.attempt, self._places.seen_from(handle.ready.node))
        for worker, why in self._gone.items():  # who is not born yet would not hear it
            handle.send("announce_gone", worker, why)

    def _ask(self, worker: str, restarts: bool) -> None:
        handle = self._handles.get(worker)
        if handle is not None and handle.ready is not None:
            handle.send("request_stop", restarts)
        else:
            self._drop(worker, "stopped before it was started")

    def _kill(self, worker: str) -> None:
        handle = self._handles.get(worker)
        if handle is None or handle.ready is None:
            self._drop(worker, "ended before it was started")
            return
        handle.killed = True
        handle.send("kill", self._skips_grace)
        self._call_later(_ANSWER_S, self._kill_if_running, handle, handle.attempt)

    def _kill_if_running(self, handle: ActorHandle, attempt: int) -> None:
        if attempt and handle.attempt == attempt and self._handles.get(handle.worker) is handle:
            handle.end()

    def _drop(self, worker: str, why: str) -> None:
        """Ends an attempt of which nothing runs yet."""
        attempt = self._alive[worker] if worker in self._waiting else 0
        self._waiting.discard(worker)
        handle = self._handles.pop(worker, None)
        if handle is not None:
            attempt = handle.attempt
            handle.end()
        if attempt:
            self._report_end(Outcome(worker, outcome.STOPPED, "start", attempt, why))

    def _announce_gone(self, worker: str, why: str) -> None:
        self._gone[worker] = why
        for handle in self._ready():
            handle.send("announce_gone", worker, why)

    # What outposts say.

    def _call_actor(
        self,
        handle: ActorHandle,
        method: str,
        then: Callable[[ActorHandle, Any], None],
        *arguments: Any,
    ) -> None:
        handle.call(
            method, lambda future: self._do(self._on_answer, handle, then, future), *arguments
        )

    def _on_answer(
        self, handle: ActorHandle, then: Callable[[ActorHandle, Any], None], future: Future[Any]
    ) -> None:
        if self._handles.get(handle.worker) is not handle:
            return
        error = future.exception()
        if error is not None:
            self._on_actor_died(handle, error)
        else:
            then(handle, future.result())

    def _on_opened(self, handle: ActorHandle, ready: ActorReady) -> None:
        handle.ready = ready
        self._begin(handle)
        self._call_actor(handle, "next_update", self._on_update)

    def _on_update(self, handle: ActorHandle, update: ActorUpdate) -> None:
        self._call_actor(handle, "next_update", self._on_update)
        if update.log and handle.log is not None and update.attempt == handle.attempt:
            handle.log.write_bytes(update.log)
        for report in update.reports:
            self._on_report(handle, report)

    def _on_report(self, handle: ActorHandle, report: Any) -> None:
        assert handle.ready is not None
        if isinstance(report, Bound):
            self._places.bind(report.address, handle.ready.node, report.endpoints)
            self._publish([report.address])
        elif isinstance(report, Ended):
            self._end(handle, report.outcome)
            if report.outcome.kind == outcome.LOST:
                self._leave(handle)
        elif not isinstance(report, ProcessStarted) or handle.ready.ip == self._ip:
            self._report(report)  # a process of another host has no number here

    def _on_actor_died(self, handle: ActorHandle, error: BaseException) -> None:
        """The outpost is dead, or out of reach: then Ray ends it, before there is another one."""
        handle.end()
        placed = self._placements.get(handle.worker)
        if placed is not None and placed.is_ready and placed.is_lost():
            placed.wait()
        del self._handles[handle.worker]
        if placed is not None and handle.never_ran(error):
            self._start(handle.worker, handle.attempt)  # Ray did not know that the node was dead
        elif handle.attempt:
            self._end(handle, handle.lost(error))

    def _leave(self, handle: ActorHandle) -> None:
        """The host of its worker is dead, and would be at the next attempt: that gets another outpost."""
        del self._handles[handle.worker]
        handle.end()

    def _end(self, handle: ActorHandle, ended: Outcome) -> None:
        handle.close_log()
        handle.attempt = 0
        self._publish(self._places.withdraw(handle.worker))
        self._report_end(ended)

    def _publish(self, addresses: list[str]) -> None:
        """Lets everybody know where these are now."""
        if not addresses:
            return
        for handle in self._ready():
            assert handle.ready is not None
            handle.send("place", self._places.seen_from(handle.ready.node, addresses))
        self._view.follow(self._places.seen_from(self._node, addresses))

    def _ready(self) -> list[ActorHandle]:
        return [handle for handle in self._handles.values() if handle.ready is not None]

    def _note(self, worker: str, text: str) -> None:
        self._report(WorkerNote(worker, text))

    # The end.

    def _close(self) -> None:
        self._view.close()
        for handle in self._handles.values():
            handle.close_log()
        with contextlib.suppress(Exception):  # a cluster that is gone has nothing of ours
            cluster.check()
            self._clean_up()

    def _clean_up(self) -> None:
        closing = [handle.actor.close.remote() for handle in self._ready()]
        if closing:
            cluster.load().wait(closing, num_returns=len(closing), timeout=_ANSWER_S)
        for handle in self._handles.values():
            handle.end()
        for placed in {id(p): p for p in self._placements.values()}.values():
            placed.remove()
