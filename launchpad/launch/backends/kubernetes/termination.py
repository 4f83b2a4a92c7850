"""Ending attempts, with harder means until they have ended, and deleting a run.

command  kill=True, by an annotation        its pod ends the worker, with its stacks in the log
5 s      the Job is deleted                 SIGTERM to the pod, then SIGKILL
+ 0.5 s  the pod, with a grace of 1 s       the Job controller had not noticed
+ 15 s   the pod, with none                 its node is dead: the object is removed
+ 60 s   it is lost                         the cluster does not answer

All that belongs to a run is deleted with its root.
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
from launchpad.launch.backends.kubernetes.attempt import Jobs, PodAttempt
from launchpad.launch.backends.kubernetes.manifests import names
from launchpad.outcome import Outcome
from launchpad.runtime.events import Event, WorkerNote

_FORGOTTEN_S = 0.5
"""How long the Job controller may take to notice that a Job was deleted."""

_KILL_COMMAND_S = 5.0
"""How long a pod may take to receive the command to kill its worker, and to do it."""

_ESCALATE_S = 15.0
"""How long a pod that is killed may take, before its object is removed whatever its node does."""

_ABANDONED_S = 60.0
"""How long the end of a pod is awaited from a cluster that does not answer."""

_AGAIN_S = 1.0

_REPEAT_S = 2.0
"""After how long commands are resent: a kubelet that is just writing the files of a pod may miss a change,
and by itself looks again only after a minute or two."""


class Terminator:
    """Ends the attempts of a launch. Methods are called in the thread of its actions.

    Args:
        end: Called with an attempt that is over without a report of its pod, and its outcome.
    """

    def __init__(
        self,
        cluster: Cluster,
        jobs: Jobs,
        actions: Actions,
        report: Callable[[Event], None],
        end: Callable[[PodAttempt, Outcome], None],
    ) -> None:
        self._cluster, self._jobs, self._actions = cluster, jobs, actions
        self._report, self._end = report, end

    def request_stop(self, attempt: PodAttempt, *, restarts: bool) -> None:
        """Requests a stop: by SIGTERM, or by an annotation if its state is to be saved."""
        attempt.asked = True
        if restarts and attempt.follower is not None:
            self.send_commands(attempt, {"restarts": True})
        else:
            self._delete(attempt)

    def kill(self, attempt: PodAttempt, *, at_once: bool) -> None:
        """Kill it: unless at once, by its pod first, if that runs; which logs its stacks."""
        attempt.asked = attempt.killed = True
        if attempt.follower is not None and not at_once:
            self._actions.call_later(_KILL_COMMAND_S, self._end_pod, attempt)
            self.send_commands(attempt, {"kill": True})
        else:
            self._end_pod(attempt)

    def send_commands(self, attempt: PodAttempt, new: Mapping[str, Any]) -> None:
        """Sends them to its pod, if it has one, and once more; a pod that starts later gets them then."""
        attempt.commands = commands = replace(attempt.commands, **new)

        def resend() -> None:
            is_deleted = attempt.asked and not (commands.restarts or commands.kill)
            if attempt.commands == commands and not is_deleted and not attempt.is_over:
                attempt.commands = replace(commands, repeats=commands.repeats + 1)
                self._retry(attempt, partial(self._jobs.send_commands, attempt))

        if attempt.pod_name and not attempt.is_over:
            self._retry(attempt, partial(self._jobs.send_commands, attempt))
            self._actions.call_later(_REPEAT_S, resend)

    def on_deleted(self, attempt: PodAttempt, grace_s: float) -> None:
        """Its pod was deleted, not by the launcher: no other may replace it; its node may be dead."""
        attempt.was_deleted = True
        self._actions.call_later(grace_s + _ESCALATE_S, self._end_pod, attempt)
        self.delete_job(attempt)

    def delete_job(self, attempt: PodAttempt) -> None:
        """Deletes its Job, so that there will be no further pod."""
        self._retry(attempt, partial(self._jobs.delete, attempt))

    def delete_pod(self, attempt: PodAttempt, grace_s: float = 0, name: str = "") -> None:
        """Deletes its pod, if it has one, or another one of that name."""
        if pod := name or attempt.pod_name:
            self._retry(attempt, partial(self._cluster.delete, "Pod", pod, grace_s=grace_s))

    def mark_lost(self, attempt: PodAttempt, why: str) -> None:
        """Ends it as lost, if it is not over."""
        if not attempt.is_over:
            self._end(attempt, Outcome(attempt.worker, outcome.LOST, "run", attempt.number, why))

    def _delete(self, attempt: PodAttempt) -> None:
        def delete() -> None:
            self._jobs.delete(attempt)
            if not attempt.pod_name:
                why = "stopped before it had a pod"
                ended = Outcome(attempt.worker, outcome.STOPPED, "start", attempt.number, why)
                self._end(attempt, ended)

        self._retry(attempt, delete)

    def _end_pod(self, attempt: PodAttempt) -> None:
        if not attempt.is_over:
            later = self._actions.call_later
            later(_FORGOTTEN_S, self.delete_pod, attempt, 1)
            later(_ESCALATE_S, self.delete_pod, attempt, 0)
            why = "it was to end, and the cluster does not say that it has"
            later(_ABANDONED_S, self.mark_lost, attempt, why)
            self._delete(attempt)

    def _retry(self, attempt: PodAttempt, call: Callable[[], object]) -> None:
        """Calls the cluster; again later if it is out of reach, as long as the attempt is not over."""
        if attempt.is_over:
            return
        try:
            call()
        except ClusterError as error:
            if error.is_retryable:
                self._actions.call_later(_AGAIN_S, self._retry, attempt, call)
            elif error.status != 404:
                self._report(WorkerNote(attempt.worker, f"the cluster refuses: {error}"))


_GONE_S = 30.0
_SOON_S, _LATE_S = 0.1, 0.4
"""The time between two looks: at first, and in the end."""


def remove(cluster: Cluster, run: str, ended: Set[str] = frozenset()) -> None:
    """Deletes a run and waits until nothing of it is left.

    Args:
        ended: Pods whose workers have ended, which a kubelet may report seconds later.

    Raises:
        ApiError: the cluster refuses.
        Unreachable: it does not answer, or something stays.
    """
    cluster.delete("Secret", run, policy="Foreground")
    deadline, pause_s = time.monotonic() + _GONE_S, _SOON_S
    while time.monotonic() < deadline:
        if is_gone(cluster, run, ended):
            return
        time.sleep(pause_s)
        pause_s = min(_LATE_S, 1.5 * pause_s)
    raise Unreachable(f"it is still there after {_GONE_S:g} s")


def is_gone(
    cluster: Cluster, run: str, ended: Set[str] = frozenset(), *, is_late: bool = False
) -> bool:
    """Return True if nothing is left of a deleted run. Remove pods that have ended; if late, all of them."""
    pods, _ = cluster.list("Pod", f"{names.RUN}={run}")
    for pod in pods:
        name = pod["metadata"]["name"]
        is_deleted = "deletionTimestamp" in pod["metadata"]
        is_idle = pod_status.is_over(pod) or (is_deleted and not pod_status.has_started(pod))
        if is_late or name in ended or is_idle:  # a kubelet may take minutes to remove it
            cluster.delete("Pod", name, grace_s=0)
    return not pods and not is_there(cluster, run)


def is_there(cluster: Cluster, run: str) -> bool:
    """Return True if the root of a run exists."""
    try:
        cluster.read("Secret", run)
    except ClusterError as error:
        if error.status == 404:
            return False
        raise
    return True
