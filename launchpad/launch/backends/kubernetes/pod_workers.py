"""The workers of one launch on a cluster.

    supervisor ── start, stop, kill … ─▶ actions, in one thread ──▶ lanes ──▶ the cluster's API
    supervisor ◀── reports ─────────────────┘ ◀── informer: the states of pods
                                              ◀── followers: what pods write

An attempt is a Job with one pod. The cluster never restarts it: as on every backend, the supervisor decides
if there is another attempt.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import tarfile
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from launchpad import outcome
from launchpad.courier import formatting
from launchpad.launch.backends.action_thread import Actions
from launchpad.launch.backends.address_table import LocalAddressView
from launchpad.launch.backends.backend import Workers
from launchpad.launch.backends.kubernetes import (
    create_run,
    open_files,
    pod_messages,
    pod_status,
    termination,
)
from launchpad.launch.backends.kubernetes.api.client import Cluster, ClusterError, RetryWindow
from launchpad.launch.backends.kubernetes.api.log_follower import LogFollower
from launchpad.launch.backends.kubernetes.api.pod_watch import PodInformer
from launchpad.launch.backends.kubernetes.api.request_lanes import RequestLanes
from launchpad.launch.backends.kubernetes.attempt import Jobs, PodAttempt, is_node_silent
from launchpad.launch.backends.kubernetes.create_run import Submitter
from launchpad.launch.backends.kubernetes.manifests import names
from launchpad.launch.backends.kubernetes.manifests.pod_spec import defaults_for
from launchpad.launch.backends.kubernetes.missing_pods import MissingPods
from launchpad.launch.backends.kubernetes.pod_inputs import archives
from launchpad.launch.backends.kubernetes.pod_messages import Chunk, PodCommands, Stacks
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.backends.kubernetes.termination import Terminator
from launchpad.launch.backends.launcher_info import RunSecrets
from launchpad.launch.devices import shortage
from launchpad.launch.logs.log_writer import LogWriter
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.outcome import Outcome
from launchpad.runtime.commands import (
    AnnounceGone,
    AnnounceWatermarks,
    Command,
    KillWorker,
    StartWorker,
    StopWorker,
)
from launchpad.runtime.events import Done, Ended, Event, Ready, Waiting, WorkerNote
from launchpad.runtime.watermarks import ENDED

_LOG_S = 5.0
"""How long the rest of a log may take to arrive after the pod has ended."""

_REPORT_S = 10.0
"""How long the cluster may take to report how a pod has ended, after the pod has sent its last message."""

_AGAIN_S = 1.0
"""The pause before the cluster is asked again to create a Job."""

_EVENT_S = 1.0
"""How long the cluster may take from the change of a pod to the event that explains it."""

_JOIN_S = 5.0
"""How long to wait for threads with open connections."""

_STACKS_S = 10.0
_REASON = 300
"""The most characters of the reason why a worker is gone. There may be many, and annotations are limited."""

_MOST_MARKS = 64


class KubernetesWorkers(Workers):
    """The workers of one launch. The constructor calls `create_run.make`, which may raise.

    No user code runs yet.
    """

    # The time until a pod's kubelet next checks the pod.
    announced_within_s = 5.0

    def __init__(
        self,
        plan: LaunchPlan,
        run: RunDirectory,
        report: Callable[[Event], None],
        settings: Settings,
        cluster: Cluster,
        submitter: Submitter | None = None,
    ) -> None:
        self._plan = plan
        self._directory = run
        self._report = report
        self._settings = settings
        self._cluster = cluster
        self._keys = RunSecrets.of(run.scope, plan.launch_type.removeprefix("test_"))
        self._view = LocalAddressView(self._keys)
        self._attempts: dict[str, PodAttempt] = {}
        self._followers: list[LogFollower] = []
        self._worker_plans = {worker.name: worker for worker in plan.workers}
        self._by_label = {names.label(worker.name): worker.name for worker in plan.workers}
        self._gone: dict[str, str] = {}
        self._group_carries: dict[str, bool] = {}
        self._states: dict[str, bytes] = {}
        # The notes about nodes that were reported.
        self._silent_nodes: set[str] = set()
        self._stacks: dict[str, Stacks] = {}
        self._numbers = itertools.count(1)
        # Held while `_stacks` is read or changed: the actions' thread adds stacks, and other threads wait for
        # them.
        self._has_stacks = threading.Condition()
        open_files.make_room(len(plan.workers))
        self._actions = Actions("launchpad-kubernetes", self._on_error)
        self._run = create_run.make(cluster, plan, run, settings, self._keys, submitter)
        self._jobs = Jobs(cluster, self._run)
        self._lanes = RequestLanes(partial(self._actions.do, self._on_error))
        self._terminator = Terminator(
            cluster, self._jobs, self._actions, self._lanes, report, self._end
        )
        self._missing_pods = MissingPods(
            cluster, self._run.name, self._actions, report, self._give_up
        )
        self._informer = PodInformer(
            cluster,
            f"{names.RUN}={self._run.name}",
            lambda *event: self._actions.do(self._on_pod, *event),
            lambda text: report(WorkerNote(plan.workers[0].name, text)),
        )
        self._actions.begin()

    def execute(self, command: Command) -> None:
        self._actions.do(self._execute, command)

    def places(self) -> Mapping[str, str]:
        """Return endpoints with pods' IP addresses. They can be used inside the cluster's network."""
        return self._view.places

    def stacks(self, worker: str) -> str:
        attempt = self._attempts.get(worker)
        if attempt is None or not attempt.pod_name:
            return ""
        number = next(self._numbers)
        self._actions.do(self._terminator.send_commands, attempt, {"stacks": number})
        with self._has_stacks:
            has_answer = self._has_stacks.wait_for(
                lambda: worker in self._stacks and self._stacks[worker].number >= number, _STACKS_S
            )
            return self._stacks[worker].text if has_answer else f"({worker} does not answer)\n"

    def crash(self, worker: str, why: str) -> str:
        """Have the worker's pod send SIGKILL to the worker's process."""
        attempt = self._attempts.get(worker)
        if attempt is None or attempt.is_over or attempt.follower is None or attempt.reported:
            return ""
        self._actions.do(self._terminator.send_commands, attempt, {"crash": True})
        return "SIGKILL"

    def close(self) -> None:
        """Delete all that belongs to the run, and wait until it is gone."""
        self._actions.end(self._close)
        self._cluster.close()
        for thread in (self._informer.thread, *(follower.thread for follower in self._followers)):
            thread.join(_JOIN_S)

    def _execute(self, command: Command) -> None:
        match command:
            case StartWorker(worker, number):
                self._start(worker, number)
            case AnnounceGone(gone, to=""):
                self._gone |= {worker: why[:_REASON] for worker, why in gone.items()}
                for attempt in self._attempts.values():
                    if not attempt.is_over:
                        self._terminator.send_commands(attempt, {"gone": dict(self._gone)})
            case StopWorker() | KillWorker() | AnnounceWatermarks():
                running = self._attempts.get(command.worker)
                if running is not None and not running.is_over:
                    self._execute_on(running, command)

    def _execute_on(
        self, attempt: PodAttempt, command: StopWorker | KillWorker | AnnounceWatermarks
    ) -> None:
        match command:
            case StopWorker(restarts=restarts):
                self._terminator.request_stop(attempt, restarts=restarts)
            case KillWorker(at_once=at_once):
                self._terminator.kill(attempt, at_once=at_once)
            case AnnounceWatermarks(values=values):
                older = {n: v for n, v in attempt.commands.watermarks.items() if n not in values}
                watermarks = {**older, **values}
                mark_names = [name for name in watermarks if not name.startswith(ENDED)]
                # The oldest marks are of barriers that the worker has passed long ago.
                for name in mark_names[:-_MOST_MARKS]:
                    del watermarks[name]
                self._terminator.send_commands(attempt, {"watermarks": watermarks})

    def _start(self, worker: str, number: int) -> None:
        before = self._attempts.get(worker)
        commands = PodCommands(carries=self._carries(worker), gone=dict(self._gone))
        attempt = PodAttempt(worker, number, commands=commands)
        self._attempts[worker] = attempt
        state = self._states.get(worker, b"")
        self._create(attempt, before, state, RetryWindow())

    def _create(
        self, attempt: PodAttempt, before: PodAttempt | None, state: bytes, window: RetryWindow
    ) -> None:
        """Create the attempt's Job. If the cluster is busy or out of reach, try again for a minute."""
        worker = self._worker_plans[attempt.worker]

        def create() -> bool:
            # What is left of the previous attempt must not answer calls that are meant for this one.
            if before is not None:
                self._jobs.delete(before)
                if before.pod_name and not pod_status.is_over(before.pod):
                    self._cluster.delete("Pod", before.pod_name, grace_s=0)
            self._jobs.create(attempt, worker, state)
            return True

        def request() -> None:
            # If it was asked to stop, its Job may have been deleted already, and must not come after that.
            if attempt.is_over or attempt.asked:
                return
            try:
                is_created = window.call(create, otherwise=False)
            except ClusterError as error:
                self._actions.do(self._on_refused, attempt, str(error))
            else:
                self._actions.do(self._on_created if is_created else again, attempt)

        def again(attempt: PodAttempt) -> None:
            self._actions.call_later(_AGAIN_S, self._create, attempt, before, state, window)

        self._lanes.add(attempt.worker, request)

    def _on_refused(self, attempt: PodAttempt, why: str) -> None:
        if not attempt.is_over:
            cause = f"the cluster does not take its pod: {why}"
            end = Outcome(attempt.worker, outcome.FAILED, "start", attempt.number, cause)
            self._end(attempt, end)

    def _on_created(self, attempt: PodAttempt) -> None:
        self._missing_pods.expect(attempt)
        self._actions.call_later(self._settings.pending_timeout_s, self._give_up, attempt)

    def _carries(self, worker: str) -> bool:
        """Return the `carries` of a worker's commands, which is the same in all of its group."""
        group = self._worker_plans[worker].group
        if group not in self._group_carries:
            self._group_carries[group] = self._jobs.carries(self._worker_plans[worker])
        return self._group_carries[group]

    def _on_pod(self, kind: str, pod: dict[str, Any]) -> None:
        labels = pod["metadata"]["labels"]
        worker = self._by_label.get(labels.get(names.WORKER, ""), "")
        attempt = self._attempts.get(worker)
        if attempt is None or attempt.is_over:
            return
        if labels.get(names.ATTEMPT) != str(attempt.number):
            return
        before = attempt.pod.get("metadata", {}).get("uid", "")
        if before and before != pod["metadata"]["uid"]:
            # The Job has replaced a pod that was deleted.
            self._terminator.delete_pod(attempt, name=pod["metadata"]["name"])
            return
        was_ready = pod_status.is_ready(attempt.pod)
        attempt.pod = pod
        attempt.pod_name = pod["metadata"]["name"]
        if was_ready and not pod_status.is_ready(pod):
            self._actions.call_later(_EVENT_S, self._report_silent_node, attempt)
        if not before and attempt.commands.text() != pod["metadata"]["annotations"][names.COMMANDS]:
            # Send the commands that came while the attempt had no pod.
            self._terminator.send_commands(attempt, {})
        is_deleted = kind == "DELETED" or "deletionTimestamp" in pod["metadata"]
        if is_deleted and not attempt.was_deleted:
            grace_s = names.grace_s(self._worker_plans[worker], self._run.grace_s)
            self._terminator.on_deleted(attempt, grace_s)
        if pod_status.has_started(pod) and attempt.follower is None:
            log = LogWriter(
                self._directory.log(worker, attempt.number),
                self._directory.rotation,
                lambda text: self._report(WorkerNote(worker, text)),
            )
            attempt.follower = LogFollower(
                self._cluster,
                attempt.pod_name,
                log,
                partial(self._actions.do, self._on_report, attempt),
                partial(self._actions.do, self._on_read, attempt),
            )
            self._followers.append(attempt.follower)
        if kind == "DELETED" or pod_status.is_over(pod):
            if attempt.follower is None or attempt.is_read:
                self._finish(attempt)
            elif not attempt.follower.is_over.is_set():
                attempt.follower.is_over.set()
                self._actions.call_later(_LOG_S, self._finish, attempt)
        elif not pod_status.has_started(pod):
            why = pod_status.why_pending(pod)
            if why and why != attempt.noted:
                attempt.noted = why
                self._report(WorkerNote(worker, f"its pod is pending: {why}"))
            if pod_status.cannot_start(pod):
                self._give_up(attempt)

    def _on_report(self, attempt: PodAttempt, report: Any) -> None:
        if isinstance(report, Ended):
            attempt.reported = report.outcome
        elif isinstance(report, Chunk):
            self._on_chunk(attempt, report)
        elif isinstance(report, Stacks):
            with self._has_stacks:
                self._stacks[attempt.worker] = report
                self._has_stacks.notify_all()
        elif not attempt.is_over:
            if isinstance(report, Done):
                # The result comes before Done, so a part that is missing now is lost.
                self._report_lost_result(attempt)
            if isinstance(report, Waiting) and report.on not in self._attempts:
                return
            if isinstance(report, Ready):
                attempt.is_ready = True
                ip = attempt.pod["status"].get("podIP", "")
                host = f"[{ip}]" if ":" in ip else ip
                places = {}
                for name, endpoint in self._worker_plans[attempt.worker].endpoints.items():
                    scheme = "tcp:" if endpoint.startswith("tcp:") else ""
                    places[name] = f"{scheme}{host}:{endpoint.rpartition(':')[2]}"
                self._view.follow(places)
            # A pod may report only for its own worker, so ignore the name in the report.
            changes = {"attempt": attempt.number} if hasattr(report, "attempt") else {}
            self._report(replace(report, worker=attempt.worker, **changes))

    def _on_chunk(self, attempt: PodAttempt, chunk: Chunk) -> None:
        if chunk.of == pod_messages.STATE:
            attempt.state.append(chunk)
            return
        # The log may be read again, and with it a result that was reported already.
        if chunk.of == pod_messages.RESULT and attempt.has_result:
            return
        pieces = attempt.pieces.setdefault(chunk.of, {})
        # A new first piece means that the event before did not arrive whole.
        if chunk.index == 0 and pieces.get(0) != chunk:
            pieces.clear()
        pieces[chunk.index] = chunk
        if len(pieces) == chunk.count:
            event = pod_messages.event_in(list(pieces.values()))
            pieces.clear()
            attempt.has_result |= chunk.of == pod_messages.RESULT
            if event is not None:
                self._report(replace(event, worker=attempt.worker, attempt=attempt.number))

    def _report_lost_result(self, attempt: PodAttempt) -> None:
        """If only a part of a result arrived, report its loss. Call this when later lines were read."""
        pieces = attempt.pieces.pop(pod_messages.RESULT, None)
        if pieces:
            lost = pod_messages.lost_result(attempt.worker, attempt.number, list(pieces.values()))
            self._report(lost)

    def _report_silent_node(self, attempt: PodAttempt) -> None:
        """If the pod is not ready because its node has fallen silent, say so, once for each node."""
        if attempt.is_over or pod_status.is_ready(attempt.pod):
            return
        text = pod_status.silent_node(attempt.pod)

        def request() -> None:
            if text in self._silent_nodes:
                return
            # The right to list events is optional.
            with contextlib.suppress(ClusterError):
                if is_node_silent(self._cluster, attempt.pod_name):
                    self._silent_nodes.add(text)
                    self._report(WorkerNote(attempt.worker, text))

        self._lanes.add(attempt.worker, request)

    def _give_up(self, attempt: PodAttempt) -> None:
        """End an attempt whose pod has not started."""
        if attempt.is_over or pod_status.has_started(attempt.pod):
            return
        own = self._worker_plans[attempt.worker].resources
        request = own.asked()
        defaults = defaults_for(own, self._settings)
        if defaults:
            amounts = ", ".join(f"{name}={amount}" for name, amount in defaults.items())
            request = f"{request or 'nothing itself'}, and by default_resources for {amounts}"
        of_all = [w for w in self._plan.workers if w.resources.gpus]
        if own.gpus and len(of_all) > 1:
            total = shortage.demand(
                [(w.group, formatting.counted(w.resources.gpus, "GPU")) for w in of_all],
                f"{sum(w.resources.gpus for w in of_all):g}",
            )
            request = f"{request}, and its program for {total}"
        why = "" if attempt.pod_name else self._missing_pods.why(attempt)
        max_wait_s = self._settings.pending_timeout_s
        end = pod_status.not_begun(attempt, attempt.pod, request, max_wait_s, why)
        self._terminator.delete_job(attempt)
        self._end(attempt, end)

    def _on_read(self, attempt: PodAttempt) -> None:
        attempt.is_read = True
        is_clear = pod_status.is_clear(attempt, attempt.was_deleted)
        if is_clear or pod_status.is_over(attempt.pod):
            self._finish(attempt)
        else:
            self._actions.call_later(_REPORT_S, self._finish, attempt)

    def _finish(self, attempt: PodAttempt) -> None:
        """Report the end of an attempt. Call this after its log was read."""
        if attempt.is_over:
            return
        if attempt.state:
            worker = attempt.worker
            try:
                content = pod_messages.joined(attempt.state)
                archives.unpack(content, self._directory.state(worker))
                self._states[worker] = content
            except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
                text = f"what it has left in its state directory did not arrive whole ({error})"
                self._report(WorkerNote(worker, text))
        self._report_lost_result(attempt)
        self._end(attempt, pod_status.ending(attempt, attempt.pod, attempt.was_deleted))

    def _end(self, attempt: PodAttempt, end: Outcome) -> None:
        attempt.is_over = True
        own = self._worker_plans[attempt.worker].endpoints
        self._view.follow(dict.fromkeys(own, ""))
        self._report(Ended(end))

    def _on_error(self, error: Exception) -> None:
        """Report an error of an action. If it isn't an error of the cluster, end all attempts as lost."""
        why = f"{type(error).__name__}: {error}"
        self._report(WorkerNote(self._plan.workers[0].name, why))
        if not isinstance(error, ClusterError):
            for attempt in self._attempts.values():
                self._terminator.mark_lost(attempt, f"its launcher cannot go on: {why}")

    def _close(self) -> None:
        self._view.close()
        self._lanes.close()
        ended_pods = {a.pod_name for a in self._attempts.values() if a.reported is not None}
        try:
            termination.remove(self._cluster, self._run.name, ended_pods)
        except ClusterError as error:
            # The supervisor reads no more reports, so print it.
            print(
                f"launchpad: what belongs to {self._run.name} could not be deleted: {error}. Delete it with"
                f" `kubectl delete configmap {self._run.name} -n {self._cluster.namespace}`",
                file=sys.stderr,
            )
        self._informer.is_over.set()
        for follower in self._followers:
            follower.is_over.set()
