"""The workers of one launch on a Ray cluster.

    supervisor ── start, kill … ──▶ actions, in one thread ── Ray calls ──▶ worker actors, one for each worker
    supervisor ◀── reports ──────────────┘ ◀── answers ─────────────┘

Everything happens in that thread, one thing after the other: commands, what actors report, what they die of.
A dead actor, and so a dead node, is one more way for a worker to end; started again, it gets a new actor,
wherever Ray has room for its bundle group.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
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
from launchpad.launch.backends.ray.placement_group import Placement, bundle_groups_of
from launchpad.launch.backends.ray.worker_actor import ActorReady, WorkerActor
from launchpad.launch.logs.log_writer import LogWriter
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.outcome import Outcome

_ANSWER_S = 5.0
"""How long an actor may take for what it does at once, before its node is taken for lost."""

_REPORT_AFTER_S = 1.0
"""Room that is there takes Ray less to give."""

_MAX_CONCURRENCY = 1000
"""Calls of one actor that may wait side by side: there is one for its next update, others take no time."""


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
        self._actions = Actions("launchpad-ray-actors", self._collapse)
        self._keys = RunSecrets.of(run.scope, plan.launch_type.removeprefix("test_"))
        self._view = LocalAddressView(self._keys)
        cluster.connect()
        try:
            self._node, self._ip = cluster.here()
            groups, nodes = bundle_groups_of(plan.workers), cluster.nodes()
            if refused := feasibility.refusal(groups, nodes):
                raise LaunchError(
                    f"program {plan.program!r} does not fit on the Ray cluster: {refused}"
                )
            if text := feasibility.unused_gpus(plan.workers, nodes):
                report(WorkerNote(plan.workers[0].name, text))
            then = partial(self._do, self._on_placement_ready)
            self._placements: dict[str, Placement] = {}
            for placed in [Placement(group, then) for group in groups]:
                self._placements |= dict.fromkeys(placed.bundle_group.workers, placed)
            self._actor_class = cluster.load().remote(WorkerActor)
            self._actions.begin()
        except BaseException:
            cluster.release()
            raise

    def start(self, worker: str, attempt: int) -> None:
        """Starts it by its actor; makes one if there is none."""
        self._do(self._start, worker, attempt)

    def request_stop(self, worker: str, *, restarts: bool = False) -> None:
        self._do(self._request_stop, worker, restarts)

    def kill(self, worker: str) -> None:
        """Kills its process, and its actor if that does not answer."""
        self._do(self._kill, worker)

    def skip_grace(self) -> None:
        self._skips_grace = True

    def announce_gone(self, worker: str, why: str) -> None:
        self._do(self._announce_gone, worker, why)

    def announce_watermarks(self, worker: str, values: Mapping[str, int]) -> None:
        self._do(self._announce_watermarks, worker, values)

    def places(self) -> Mapping[str, str]:
        return self._view.places

    def stacks(self, worker: str) -> str:
        handle = self._handles.get(worker)
        if handle is None or handle.ready is None:
            return ""
        try:
            return str(cluster.load().get(handle.actor.stacks.remote(), timeout=_ANSWER_S))
        except Exception as error:
            return f"({worker} does not answer: {error})\n"

    def close(self) -> None:
        """Ends all actors, gives the room back, and leaves the cluster."""
        self._actions.end(self._close)
        cluster.release()

    # Actions, in their thread.

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

    # Reserved room.

    def _on_placement_ready(self, placed: Placement) -> None:
        placed.is_ready = True
        for worker in placed.bundle_group.workers:
            if worker in self._waiting:
                self._waiting.remove(worker)
                self._start(worker, self._alive[worker])

    def _on_still_waiting(
        self, worker: str, attempt: int, placed: Placement, gives_up: bool
    ) -> None:
        """Reports what the worker waits for; at last, that no other program has left that room."""
        if worker not in self._waiting or self._alive[worker] != attempt:
            return
        free = cluster.load().available_resources()
        why = feasibility.shortage(placed.bundle_group, cluster.nodes(), free)
        if not gives_up:
            self._report(WorkerNote(worker, f"waiting for room: {why}"))
            return
        self._waiting.remove(worker)
        why = f"no room on the Ray cluster for {placement_group.PENDING_S:g} s: {why}"
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
            self._waiting.add(worker)
            for delay_s, gives_up in (_REPORT_AFTER_S, False), (placement_group.PENDING_S, True):
                self._call_later(delay_s, self._on_still_waiting, worker, attempt, placed, gives_up)
        else:
            options = placement_group.SPREAD_OPTIONS if placed is None else placed.options(worker)
            made = self._actor_class.options(max_concurrency=_MAX_CONCURRENCY, **options)
            handle = self._handles[worker] = ActorHandle(worker, made.remote(versions()), attempt)
            own = (self._plan.worker(worker),)
            plan = replace(self._plan, workers=own, uids={}, client_options={})
            state = self._run.state_places(worker, own[0].group, is_one_host=False)
            run_id = self._run.run_id
            self._call_actor(handle, "open", plan, self._origin, run_id, state, self._keys)

    def _begin(self, handle: ActorHandle) -> None:
        """Starts the attempt, if the actor is ready; else that is done when it is."""
        if handle.ready is None:
            return
        log = self._run.log(handle.worker, handle.attempt)
        handle.log = LogWriter(
            log, self._run.rotation, lambda text: self._report(WorkerNote(handle.worker, text))
        )
        handle.send("start", handle.attempt, self._places.seen_from(handle.ready.node))
        for worker, why in self._gone.items():  # it was not there to be told
            handle.send("announce_gone", worker, why)

    def _request_stop(self, worker: str, restarts: bool) -> None:
        handle = self._handles.get(worker)
        if handle is not None and handle.ready is not None:
            handle.send("request_stop", worker, restarts=restarts)
        else:
            self._drop(worker, "stopped before it was started")

    def _kill(self, worker: str) -> None:
        handle = self._handles.get(worker)
        if handle is None or handle.ready is None:
            self._drop(worker, "ended before it was started")
            return
        handle.killed = True
        if self._skips_grace:
            handle.send("skip_grace")
        handle.send("kill", worker)
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

    def _announce_watermarks(self, worker: str, values: Mapping[str, int]) -> None:
        handle = self._handles.get(worker)
        if handle is not None and handle.ready is not None:
            handle.send("announce_watermarks", worker, values)

    # What actors report.

    def _call_actor(self, handle: ActorHandle, method: str, *arguments: Any) -> None:
        future = getattr(handle.actor, method).remote(*arguments).future()
        # The callback runs in some thread of Ray's.
        future.add_done_callback(lambda done: self._do(self._on_answer, handle, done))

    def _on_answer(self, handle: ActorHandle, future: Future[Any]) -> None:
        if self._handles.get(handle.worker) is not handle:
            return
        error = future.exception()
        if error is not None:
            self._on_actor_died(handle, error)
            return
        answer = future.result()
        if isinstance(answer, ActorReady):
            handle.ready = answer
            self._begin(handle)
            self._call_actor(handle, "next_update")
            return
        self._call_actor(handle, "next_update")
        if answer.log and handle.log is not None and answer.attempt == handle.attempt:
            handle.log.write_bytes(answer.log)
        for report in answer.reports:
            self._on_report(handle, report)

    def _on_report(self, handle: ActorHandle, report: Any) -> None:
        assert handle.ready is not None
        if isinstance(report, Bound):
            self._places.bind(report.address, handle.ready.node, report.endpoints)
            self._publish([report.address])
        elif isinstance(report, Ended):
            # Its log is here, in pieces; one that it names is on the node, and goes with the actor.
            self._end(handle, replace(report.outcome, log_path=""))
            if report.outcome.kind == outcome.LOST:
                # Its forkserver is dead, and would be at the next attempt: that gets another actor.
                del self._handles[handle.worker]
                handle.end()
        elif not isinstance(report, ProcessStarted) or handle.ready.ip == self._ip:
            self._report(report)  # a process of another host has no number here

    def _on_actor_died(self, handle: ActorHandle, error: BaseException) -> None:
        """The actor is dead, or out of reach: then Ray ends it, before there is another one."""
        handle.end()
        placed = self._placements.get(handle.worker)
        if placed is not None and placed.is_ready and placed.is_lost():
            placed.wait()
        del self._handles[handle.worker]
        if placed is not None and handle.ready is None and "never ran" in str(error):
            # Ray had no process for it yet, since it did not know that the node was dead.
            self._start(handle.worker, handle.attempt)
        elif handle.attempt:
            self._end(handle, handle.lost(error))

    def _end(self, handle: ActorHandle, ended: Outcome) -> None:
        handle.close_log()
        handle.attempt = 0
        self._publish(self._places.withdraw(handle.worker))
        self._report_end(ended)

    def _publish(self, addresses: list[str]) -> None:
        """Tells all where these are now."""
        if not addresses:
            return
        for handle in self._ready():
            assert handle.ready is not None
            handle.send("place", self._places.seen_from(handle.ready.node, addresses))
        self._view.follow(self._places.seen_from(self._node, addresses))

    def _ready(self) -> list[ActorHandle]:
        return [handle for handle in self._handles.values() if handle.ready is not None]

    def _close(self) -> None:
        self._view.close()
        for handle in self._handles.values():
            handle.close_log()
        with contextlib.suppress(Exception):  # a cluster that is gone has nothing of ours
            cluster.check()
            ray = cluster.load()
            closing = [handle.actor.close.remote() for handle in self._ready()]
            if closing:
                ray.wait(closing, num_returns=len(closing), timeout=_ANSWER_S)
            for handle in self._handles.values():
                handle.end()
            for placed in set(self._placements.values()):
                ray.util.remove_placement_group(placed.reserved)
