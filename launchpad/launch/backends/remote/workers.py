"""The workers of one launch, each started by a worker host that another system has placed.

    supervisor ── start, kill … ──▶ actions, in one thread ── calls ──▶ worker hosts, one for each worker
    supervisor ◀── reports ──────────────┘ ◀── answers ───────┘

Everything happens in that thread, one thing after the other: commands, reports of hosts, deaths of hosts. The
death of a host, or of its node, is one more way for a worker to end. If the worker is restarted, it gets a
new host.

A backend does the rest: it has hosts placed (`_find_host`), and decides what their death means
(`_on_host_died`).
"""

from __future__ import annotations

import abc
import contextlib
import weakref
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from typing import Any

from launchpad import outcome
from launchpad.errors import LaunchError
from launchpad.launch.backends.action_thread import Actions
from launchpad.launch.backends.address_table import AddressTable, LocalAddressView
from launchpad.launch.backends.backend import Workers
from launchpad.launch.backends.launcher_info import LauncherInfo, RunSecrets
from launchpad.launch.backends.remote.host_handle import HostHandle
from launchpad.launch.backends.remote.lease import ENDED_AFTER_S, Renewals
from launchpad.launch.backends.remote.worker_host import HostReady, HostSpec
from launchpad.launch.large_buffers import Openable
from launchpad.launch.logs.log_writer import LogWriter
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.worker.spec import WorkerSpec
from launchpad.outcome import Outcome
from launchpad.runtime.commands import (
    AddressesChanged,
    AnnounceGone,
    AnnounceWatermarks,
    Command,
    KillWorker,
    StartWorker,
    StopWorker,
)
from launchpad.runtime.events import Bound, Ended, Event, ProcessStarted, WorkerNote

ANSWER_S = 5.0
"""How long a host may take for a quick answer before it is considered lost."""


class HostedWorkers(Workers):
    """The workers of one launch. A subclass connects to its cluster, sets `_here`, and begins the actions.

    Args:
        cluster: The name of the cluster in errors, for example `Ray cluster`.

    Attributes:
        _here: The node and the address of this process.
        _waiting: Workers that start as soon as there is a host for each.
        _alive: Worker → the number of its attempt, for workers that were started and have not ended.
    """

    _here: HostReady

    def __init__(
        self,
        plan: LaunchPlan,
        run: RunDirectory,
        report: Callable[[Event], None],
        launcher: LauncherInfo,
        cluster: str,
    ) -> None:
        self._plan = plan
        self._run = run
        self._report = report
        self._launcher = launcher
        self._cluster = cluster
        self._handles: dict[str, HostHandle] = {}
        self._waiting: set[str] = set()
        self._alive: dict[str, int] = {}
        self._gone: dict[str, str] = {}
        self._places = AddressTable()
        self._renewals = Renewals()
        # The hosts that were reported as silent. It must not keep those that are gone.
        self._silent: weakref.WeakSet[object] = weakref.WeakSet()
        self._broken = ""
        launch_type = plan.launch_type.removeprefix("test_")
        self._actions = Actions(f"launchpad-{launch_type}-hosts", self._collapse)
        self._keys = RunSecrets.of(run.scope, launch_type)
        self._view = LocalAddressView(self._keys)

    @abc.abstractmethod
    def _check(self) -> None:
        """Raise an error if the cluster can't be used any more."""

    @abc.abstractmethod
    def _find_host(self, worker: str, attempt: int) -> HostHandle | None:
        """Return a host for a worker. If no host is there yet, return None; call `_start_waiting` later."""

    def _on_host_died(self, handle: HostHandle, error: BaseException) -> None:
        """End a host that is dead or out of reach, and report its end. So a worker never has two hosts."""
        handle.end()
        self._report_lost_when_over(handle, error)

    def execute(self, command: Command) -> None:
        self._do(self._execute, command)

    def places(self) -> Mapping[str, str]:
        return self._view.places

    def stacks(self, worker: str) -> str:
        handle = self._handles.get(worker)
        if handle is None or handle.ready is None:
            return ""
        try:
            return str(handle.call("stacks").result(ANSWER_S))
        except Exception as error:
            return f"({worker} does not answer: {error})\n"

    # Actions, which are called in their own thread.

    def _do(self, action: Callable[..., object], *arguments: Any) -> None:
        self._actions.do(self._act, action, *arguments)

    def _call_later(self, delay_s: float, action: Callable[..., object], *arguments: Any) -> None:
        self._actions.call_later(delay_s, self._act, action, *arguments)

    def _act(self, action: Callable[..., object], *arguments: Any) -> None:
        if not self._broken:
            self._check()
        action(*arguments)

    def _collapse(self, error: Exception) -> None:
        """Report the end of all workers after an error that leaves the launch without its cluster."""
        # Later errors are consequences of the first.
        self._broken = self._broken or (
            f"the {self._cluster} cannot be used any more: {type(error).__name__}: {error}"
        )
        handles = self._handles
        self._handles = {}
        self._waiting.clear()
        self._renewals.close()
        for handle in handles.values():
            handle.close_log()
            # If the cluster still works, the hosts must be ended.
            with contextlib.suppress(Exception):
                self._check()
                handle.end()
        for worker, attempt in list(self._alive.items()):
            ran = worker in handles and handles[worker].ready is not None
            kind, phase = (outcome.LOST, "run") if ran else (outcome.FAILED, "start")
            self._report_end(Outcome(worker, kind, phase, attempt, self._broken))

    def _report_end(self, end: Outcome) -> None:
        self._alive.pop(end.worker, None)
        self._report(Ended(end))

    # Commands.

    def _execute(self, command: Command) -> None:
        """Execute a command in the actions' thread. Most commands are passed on to their worker's host."""
        match command:
            case StartWorker(worker, attempt):
                self._start(worker, attempt)
            case StopWorker(worker):
                handle = self._ready_host_of(worker)
                if handle is not None:
                    handle.send(command)
                else:
                    self._drop(worker, "stopped before it was started")
            case KillWorker(worker):
                self._kill(command)
            case AnnounceGone(gone, to=""):  # to a worker that has just been started: see _begin
                self._gone |= gone
                for handle in self._ready():
                    handle.send(command)
            case AnnounceWatermarks(worker):
                handle = self._ready_host_of(worker)
                if handle is not None:
                    handle.send(command)

    def _start(self, worker: str, attempt: int) -> None:
        self._alive[worker] = attempt
        handle = self._handles.get(worker)
        if self._broken:
            self._report_end(Outcome(worker, outcome.FAILED, "start", attempt, self._broken))
        elif handle is not None:
            handle.attempt = attempt
            handle.killed = False
            self._begin(handle)
        else:
            self._open_host(worker, attempt)

    def _open_host(self, worker: str, attempt: int) -> None:
        """Find a host for the worker's first attempt, and open it. The worker waits if there is no host."""
        handle = self._find_host(worker, attempt)
        if handle is None:
            self._waiting.add(worker)
            return
        self._handles[worker] = handle
        own = self._plan.worker(worker)
        own = replace(own, gpus=handle.gpus or own.gpus)
        spec = WorkerSpec(
            replace(own, payload=replace(own.payload, buffers=())),
            self._plan.program,
            self._plan.launch_type,
            endpoints={},  # the host gets each one when its server is ready
            state=self._run.state_places(worker, own.group, is_one_host=False),
            can_move=True,
        )
        host_spec = HostSpec(
            spec, self._launcher, self._run.run_id, self._plan.modules, self._plan.state
        )
        # Each buffer is a separate argument, so that it need be sent to a host only once.
        buffers = map(self._shared, own.payload.buffers)
        self._call_host(handle, "open", host_spec, self._keys, *buffers)

    def _shared(self, buffer: Openable) -> Any:
        """Return the stand-in for a large buffer among the arguments of `open`."""
        return buffer

    def _start_waiting(self, workers: Iterable[str]) -> None:
        """Start those of these workers that have waited for a host."""
        for worker in workers:
            if worker in self._waiting:
                self._waiting.remove(worker)
                self._start(worker, self._alive[worker])

    def _begin(self, handle: HostHandle) -> None:
        """Start the attempt if its host is ready. Otherwise, this is called again when the host is ready."""
        if handle.ready is None:
            return
        log = self._run.log(handle.worker, handle.attempt)
        handle.log = LogWriter(
            log, self._run.rotation, lambda text: self._report(WorkerNote(handle.worker, text))
        )
        handle.send(StartWorker(handle.worker, handle.attempt))
        # Send this after the start, because the host's forkserver passes it on only to a worker that runs.
        handle.send(AddressesChanged(self._places.seen_from(handle.ready.node)))
        # This worker did not run yet when these ends were announced.
        if self._gone:
            handle.send(AnnounceGone(dict(self._gone)))

    def _kill(self, command: KillWorker) -> None:
        handle = self._ready_host_of(command.worker)
        if handle is None:
            self._drop(command.worker, "ended before it was started")
            return
        handle.killed = True
        handle.send(command)
        self._call_later(ANSWER_S, self._kill_if_running, handle, handle.attempt)

    def _kill_if_running(self, handle: HostHandle, attempt: int) -> None:
        if attempt and handle.attempt == attempt and self._handles.get(handle.worker) is handle:
            handle.end()

    def _drop(self, worker: str, why: str) -> None:
        """End an attempt that has not started yet."""
        attempt = self._alive[worker] if worker in self._waiting else 0
        self._waiting.discard(worker)
        handle = self._handles.pop(worker, None)
        if handle is not None:
            attempt = handle.attempt
            handle.end()
        if attempt:
            self._report_end(Outcome(worker, outcome.STOPPED, "start", attempt, why))

    # What hosts report.

    def _call_host(self, handle: HostHandle, method: str, *arguments: Any) -> None:
        future = handle.call(method, *arguments)
        # The callback runs in another thread, so it only queues an action.
        future.add_done_callback(lambda answer: self._do(self._on_answer, handle, answer))

    def _on_answer(self, handle: HostHandle, future: Future[Any]) -> None:
        if self._handles.get(handle.worker) is not handle or handle.is_silent:
            return
        error = future.exception()
        if error is not None:
            self._on_host_died(handle, error)
            return
        answer = future.result()
        if isinstance(answer, HostReady):
            handle.ready = answer
            if handle.lease_of is handle:
                silent = LaunchError(f"it has not answered for {ENDED_AFTER_S:g} s")
                self._renewals.begin(
                    handle, handle.renew, partial(self._do, self._on_silent, handle, silent)
                )
            self._begin(handle)
            self._call_host(handle, "next_update")
            return
        self._call_host(handle, "next_update")
        if answer.log and handle.log is not None and answer.attempt == handle.attempt:
            handle.log.write_bytes(answer.log)
        for report in answer.reports:
            self._on_report(handle, report)

    def _on_silent(self, handle: HostHandle, error: LaunchError) -> None:
        """End a host that doesn't answer, although nothing has said that it is gone."""
        if self._handles.get(handle.worker) is handle and not handle.is_silent:
            self._on_host_died(handle, error)

    def _on_report(self, handle: HostHandle, report: Any) -> None:
        assert handle.ready is not None
        if isinstance(report, Bound):
            self._places.bind(report.address, handle.ready.node, report.endpoints)
            self._publish([report.address])
        elif isinstance(report, Ended):
            # The host has sent the log in pieces. The log file in the outcome is on the node, and is removed
            # with the host.
            self._end(handle, replace(report.outcome, log_path=""))
            if report.outcome.kind == outcome.LOST:
                # The forkserver of this host is dead, so the next attempt needs another host.
                del self._handles[handle.worker]
                handle.end()
        elif not isinstance(report, ProcessStarted) or handle.ready.ip == self._here.ip:
            # The pid of a process on another host means nothing here.
            self._report(report)

    def _report_lost_when_over(self, handle: HostHandle, error: BaseException) -> None:
        """Report the end of a host's attempt, as soon as nothing of it can run any more."""
        left_s = self._renewals.stop(handle.lease_of)
        if handle.is_surely_dead(error) or left_s == 0 or not handle.attempt:
            self._report_lost(handle, error)
            return
        handle.is_silent = True
        self._call_later(left_s, self._report_lost_later, handle, error)
        if handle.lease_of not in self._silent:
            self._silent.add(handle.lease_of)
            host = "" if handle.ready is None else f" on {handle.ready.ip}"
            why = f"its host{host} does not answer: {handle.describe_error(error)}"
            text = f"{why}. What runs there is ended within {left_s:.0f} s, and may start elsewhere then"
            self._report(WorkerNote(handle.worker, text))

    def _report_lost_later(self, handle: HostHandle, error: BaseException) -> None:
        if self._handles.get(handle.worker) is handle:
            self._report_lost(handle, error)

    def _report_lost(self, handle: HostHandle, error: BaseException) -> None:
        """Forget a dead host, and report the end of the attempt that it ran."""
        del self._handles[handle.worker]
        if handle.attempt:
            self._end(handle, handle.lost(error))

    def _end(self, handle: HostHandle, end: Outcome) -> None:
        handle.close_log()
        handle.attempt = 0
        self._publish(self._places.withdraw(handle.worker))
        self._report_end(end)

    def _publish(self, addresses: list[str]) -> None:
        """Send the new places of these addresses to all hosts, and to the view of this process."""
        if not addresses:
            return
        for handle in self._ready():
            assert handle.ready is not None
            handle.send(AddressesChanged(self._places.seen_from(handle.ready.node, addresses)))
        self._view.follow(self._places.seen_from(self._here.node, addresses))

    def _ready(self) -> list[HostHandle]:
        return [handle for handle in self._handles.values() if handle.ready is not None]

    def _ready_host_of(self, worker: str) -> HostHandle | None:
        handle = self._handles.get(worker)
        return None if handle is None or handle.ready is None else handle

    def _close_hosts(self) -> None:
        """End what still runs on the hosts that answer, then end all hosts."""
        self._view.close()
        self._renewals.close()
        for handle in self._handles.values():
            handle.close_log()
        # If the cluster is gone, nothing of this launch is left on it.
        with contextlib.suppress(Exception):
            self._check()
            wait([handle.call("close") for handle in self._ready()], ANSWER_S)
            for handle in self._handles.values():
                handle.end()
