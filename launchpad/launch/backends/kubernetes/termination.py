"""The end of attempts, by harder and harder means, and the deletion of a run.

command  kill=True, in an annotation              the pod ends its worker, with the stacks in the log
5 s      the Job is deleted                       the pod gets SIGTERM, then SIGKILL
+ 0.5 s  the pod is deleted, with 1 s of grace    if the Job controller has not noticed
+ 15 s   the pod is deleted, without grace        if its node is dead: the object is removed
+ 60 s   the attempt counts as lost               if the cluster does not answer

When the root of a run is deleted, the cluster deletes all other objects of the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from functools import partial
from typing import Any

from launchpad import outcome
from launchpad.launch.backends.action_thread import Actions
from launchpad.launch.backends.kubernetes import pod_status
from launchpad.launch.backends.kubernetes.api.client import Cluster, ClusterError, Unreachable
from launchpad.launch.backends.kubernetes.api.request_lanes import RequestLanes
from launchpad.launch.backends.kubernetes.attempt import Jobs, PodAttempt
from launchpad.launch.backends.kubernetes.manifests import names
from launchpad.outcome import Outcome
from launchpad.runtime.events import Event, WorkerNote

_FORGOTTEN_S = 0.5
"""How long the Job controller may take to notice that a Job was deleted."""

_KILL_COMMAND_S = 5.0
"""How long a pod may take to receive the command to kill its worker, and to execute it."""

_ESCALATE_S = 15.0
"""How long a killed pod may take to end, before its object is removed regardless of its node."""

_ABANDONED_S = 60.0
"""How long to wait for the end of a pod if the cluster doesn't answer."""

_AGAIN_S = 1.0

_REPEAT_S = 2.0
"""Seconds after which commands are sent again. A kubelet that is just writing the files of a pod may miss a
change. By itself, the kubelet checks again only after a minute or two."""


class Terminator:
    """The means to end the attempts of a launch. Call its methods in the thread of the actions.

    Requests go into the lane of their worker.

    Args:
        end: Called with an attempt that has ended without a report of its pod, and with the attempt's
            outcome.
    """

    def __init__(
        self,
        cluster: Cluster,
        jobs: Jobs,
        actions: Actions,
        lanes: RequestLanes,
        report: Callable[[Event], None],
        end: Callable[[PodAttempt, Outcome], None],
    ) -> None:
        self._cluster = cluster
        self._jobs = jobs
        self._actions = actions
        self._lanes = lanes
        self._report = report
        self._end = end

    def request_stop(self, attempt: PodAttempt, *, restarts: bool) -> None:
        """Ask the worker to stop: by SIGTERM, or, to save its state for a restart, by an annotation."""
        attempt.asked = True
        if restarts and attempt.follower is not None:
            self.send_commands(attempt, {"restarts": True})
        else:
            self._delete(attempt)

    def kill(self, attempt: PodAttempt, *, at_once: bool) -> None:
        """Kill the worker. Unless `at_once`, let a running pod do so, because the pod logs the stacks."""
        attempt.asked = True
        attempt.killed = True
        if attempt.follower is not None and not at_once:
            self._actions.call_later(_KILL_COMMAND_S, self._end_pod, attempt)
            self.send_commands(attempt, {"kill": True})
        else:
            self._end_pod(attempt)

    def send_commands(self, attempt: PodAttempt, new: Mapping[str, Any]) -> None:
        """Add commands, and send all of them to the pod, twice. A pod that starts later gets them then."""
        attempt.commands = replace(attempt.commands, **new)
        commands = attempt.commands

        def resend() -> None:
            is_deleted = attempt.asked and not (commands.restarts or commands.kill)
            if attempt.commands == commands and not is_deleted and not attempt.is_over:
                attempt.commands = replace(commands, repeats=commands.repeats + 1)
                self._send(attempt)

        if attempt.pod_name and not attempt.is_over:
            self._send(attempt)
            self._actions.call_later(_REPEAT_S, resend)

    def on_deleted(self, attempt: PodAttempt, grace_s: float) -> None:
        """Handle a deletion of the pod, perhaps not by the launcher.

        No other pod may replace it. If its node is dead, it must be removed after a while.
        """
        attempt.was_deleted = True
        self._actions.call_later(grace_s + _ESCALATE_S, self._end_pod, attempt)
        self.delete_job(attempt)

    def delete_job(self, attempt: PodAttempt) -> None:
        """Delete the attempt's Job, so that no further pod is created."""
        self._retry(attempt, partial(self._jobs.delete, attempt))

    def delete_pod(self, attempt: PodAttempt, grace_s: float = 0, name: str = "") -> None:
        """Delete the attempt's pod, if it has one; with `name`, delete that pod instead."""
        pod = name or attempt.pod_name
        if pod:
            self._retry(attempt, partial(self._cluster.delete, "Pod", pod, grace_s=grace_s))

    def mark_lost(self, attempt: PodAttempt, why: str) -> None:
        """End an attempt as lost, if it has not ended."""
        if not attempt.is_over:
            self._end(attempt, Outcome(attempt.worker, outcome.LOST, "run", attempt.number, why))

    def _send(self, attempt: PodAttempt) -> None:
        """Send the commands, unless they wait to be sent already: then one request sends all of them."""

        def send() -> None:
            # Before the commands are read. So commands that are added now are either read, or sent again.
            attempt.is_sending = False
            try:
                self._jobs.send_commands(attempt)
            except ClusterError as error:
                attempt.is_sending = error.is_retryable
                raise

        if not attempt.is_sending:
            attempt.is_sending = True
            self._retry(attempt, send)

    def _delete(self, attempt: PodAttempt) -> None:
        def end() -> None:
            if not attempt.pod_name and not attempt.is_over:
                why = "stopped before it had a pod"
                self._end(
                    attempt,
                    Outcome(attempt.worker, outcome.STOPPED, "start", attempt.number, why),
                )

        self._retry(attempt, partial(self._jobs.delete, attempt), end)

    def _end_pod(self, attempt: PodAttempt) -> None:
        if not attempt.is_over:
            later = self._actions.call_later
            later(_FORGOTTEN_S, self.delete_pod, attempt, 1)
            later(_ESCALATE_S, self.delete_pod, attempt, 0)
            why = "it was to end, and the cluster does not say that it has"
            later(_ABANDONED_S, self.mark_lost, attempt, why)
            self._delete(attempt)

    def _retry(
        self,
        attempt: PodAttempt,
        call: Callable[[], object],
        then: Callable[[], object] | None = None,
    ) -> None:
        """Call the cluster. If it is out of reach, call again later, until the attempt has ended.

        Args:
            then: Called in the thread of the actions when the cluster has taken the request.
        """
        if not attempt.is_over:
            self._lanes.add(attempt.worker, partial(self._try, attempt, call, then))

    def _try(
        self,
        attempt: PodAttempt,
        call: Callable[[], object],
        then: Callable[[], object] | None,
    ) -> None:
        # The attempt may have ended since the request came into its lane.
        if attempt.is_over:
            return
        try:
            call()
        except ClusterError as error:
            if error.is_retryable:
                self._actions.do(self._retry_later, attempt, call, then)
            elif error.status != 404:
                self._report(WorkerNote(attempt.worker, f"the cluster refuses: {error}"))
        else:
            if then is not None:
                self._actions.do(then)

    def _retry_later(self, *arguments: Any) -> None:
        self._actions.call_later(_AGAIN_S, self._retry, *arguments)


_GONE_S = 30.0
_SOON_S = 0.1
_LATE_S = 0.4
"""The time between two requests to the cluster: at first, and in the end."""


def remove(cluster: Cluster, run: str, ended_pods: Set[str] = frozenset()) -> None:
    """Delete a run, and wait until nothing of it is left.

    Args:
        ended_pods: Pods whose workers have ended. The kubelet may report their end only seconds later.

    Raises:
        ApiError: the cluster refuses.
        Unreachable: the cluster doesn't answer, or something of the run stays.
    """
    cluster.delete("ConfigMap", run, policy="Foreground")
    deadline = time.monotonic() + _GONE_S
    pause_s = _SOON_S
    while time.monotonic() < deadline:
        if is_gone(cluster, run, ended_pods):
            return
        time.sleep(pause_s)
        pause_s = min(_LATE_S, 1.5 * pause_s)
    raise Unreachable(f"it is still there after {_GONE_S:g} s")


def is_gone(
    cluster: Cluster, run: str, ended_pods: Set[str] = frozenset(), *, is_late: bool = False
) -> bool:
    """Return True if nothing is left of a deleted run. Remove ended pods or, if `is_late`, all pods."""
    pods, _ = cluster.list("Pod", f"{names.RUN}={run}")
    for pod in pods:
        name = pod["metadata"]["name"]
        is_deleted = "deletionTimestamp" in pod["metadata"]
        is_idle = pod_status.is_over(pod) or (is_deleted and not pod_status.has_started(pod))
        # The kubelet may take minutes to remove this pod.
        if is_late or name in ended_pods or is_idle:
            cluster.delete("Pod", name, grace_s=0)
    return not pods and not is_there(cluster, run)


def is_there(cluster: Cluster, run: str) -> bool:
    """Return True if the root of a run exists."""
    try:
        cluster.read("ConfigMap", run)
    except ClusterError as error:
        if error.status == 404:
            return False
        raise
    return True
