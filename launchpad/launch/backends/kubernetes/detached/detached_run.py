"""A run in the cluster, with the methods that `Detached` needs, wherever its launcher is.

in a launcher pod     requests (stop, a question) and the state of the program are annotations of that pod, an
                      answer is a Secret; the workers' output is in the pod's log
elsewhere, or gone    the state comes from the run's pods, and a stop deletes the run
"""

from __future__ import annotations

import os
import pickle
import time
import zlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from launchpad import outcome
from launchpad.errors import LaunchError, ProgramFailed
from launchpad.launch.backends.kubernetes import pod_messages, pod_status, termination
from launchpad.launch.backends.kubernetes.api import permissions
from launchpad.launch.backends.kubernetes.api.client import ApiError, Cluster, Manifest, RetryWindow
from launchpad.launch.backends.kubernetes.api.log_follower import split_timestamp
from launchpad.launch.backends.kubernetes.detached import launcher_manifests, launcher_state
from launchpad.launch.backends.kubernetes.detached.launcher_state import ProgramEnded
from launchpad.launch.backends.kubernetes.manifests import names
from launchpad.launch.backends.kubernetes.pod_messages import PodCommands
from launchpad.launch.rundir.record import WorkerStatus

_POLL_S = 0.5
_GONE_LOOK_S = 0.2
_ANSWER_S = 30.0
_ANSWER_POLL_S = 0.1
_AGAIN_S = 2.0
_SHORT_S = 1.0
"""Seconds that a worker which is killed may take to stop."""

_ESCALATE_S = 15.0
"""How long after its grace period a pod may exist, before its object is removed regardless of its node."""

_LAUNCHER_KILL_S = 30.0
"""How long a launcher pod may take to kill its program."""

_REPLACED_S = 60.0
"""How long the cluster may take to replace a launcher pod that is gone."""

_FORBIDDEN = 403
_NOT_FOUND = 404
_NO_LOG = (400, _NOT_FOUND)
"""Statuses of requests for the log of a container that doesn't exist yet, or no longer exists."""

_GRACE_S = "terminationGracePeriodSeconds"
_SEPARATOR = " | "
_DELETED = "its supervisor was deleted, and it is unknown how the program has ended"


class DetachedRun:
    """One run. `Detached` calls its methods by name.

    Args:
        workers: Name → group.
        launcher: The name of its launcher pod's objects; empty if the run was launched from elsewhere.
        is_asked: True if the launcher pod could answer requests when this object was created.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        workers: Mapping[str, str],
        launcher: str = "",
        is_asked: bool = False,
    ) -> None:
        self._cluster = cluster
        self._name = name
        self._workers = workers
        self._launcher = launcher
        self._is_asked = is_asked
        self._retry = RetryWindow()
        self._sent_commands = PodCommands()
        self._is_to_go = False
        self._skips_grace = False
        self._is_deleted = False
        self._was_stopped = False
        self._gives_up_at = float("inf")
        self._escalates_at = float("inf")
        self._expects_pod_until = float("inf")
        self._ended: ProgramEnded | None = None
        self._failure: ProgramFailed | LaunchError | None = None

    def status(self) -> list[WorkerStatus]:
        """Return a row for each worker, made from its newest pod or from the program's end."""
        end = self._ended
        if self._is_asked and end is None:
            if self._is_deleted:
                end = ProgramEnded("", states={outcome.STOPPED: list(self._workers)})
            else:
                end = launcher_state.ended_in(self._launcher_pod())
        rows: list[WorkerStatus] = []
        pods = self._pods() if end is None else []
        newest = {pod["metadata"]["labels"][names.WORKER]: pod for pod in pods}
        for worker, group in self._workers.items():
            if end is None:
                state = _state_of(worker, newest.get(names.label(worker)))
            else:
                state = _state_at_end(worker, end)
            rows.append(WorkerStatus(worker, group, state.name, state.attempt, state.cause, ""))
        return rows

    def stop(self, at_once: bool = False) -> None:
        """Ask the launcher pod to stop the program. If there is no launcher pod, delete the run at once.

        When the launcher pod has ended, `wait` deletes the run. If a stop fails half-way, it can be repeated.
        """
        self._is_to_go = True
        self._skips_grace |= at_once
        pod = self._launcher_pod()
        if acts(pod):
            self._send_commands(replace(self._sent_commands, stop=True, kill=at_once))
            grace_s = 0.0 if at_once else float(pod["spec"].get(_GRACE_S, 0))
            self._gives_up_at = time.monotonic() + _LAUNCHER_KILL_S + grace_s
        elif self._is_asked:
            self._has_ended()
        else:
            self._delete(at_once)

    def wait(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s` until the program has ended, and return True if it has.

        If the program was asked to stop and has ended, delete the run.
        """
        deadline = time.monotonic() + timeout_s
        while not self._retry.call(self._has_ended, otherwise=False):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_GONE_LOOK_S if self._is_deleted else _POLL_S)
        return True

    def failure(self) -> ProgramFailed | LaunchError | None:
        """Return the failure that `wait` found; None if there was no failure, or if none was reported."""
        return self._failure

    def logs(self, worker: str, offset: int = 0) -> str:
        """Return a worker's output in all attempts; without a launcher pod, only in the newest attempt."""
        if self._is_asked:
            lines = [line.decode(errors="replace") for line in self._printed(self._launcher_pod())]
            parts = [line.partition(_SEPARATOR) for line in lines]
            texts = [f"{text}\n" for name, _, text in parts if name.rstrip() == worker]
            return "".join(texts)[offset:]
        label = names.label(worker)
        pods = [p for p in self._pods() if p["metadata"]["labels"][names.WORKER] == label]
        printed = self._printed(pods[-1] if pods else {})
        users = [
            pod_messages.unescaped(line) for line in printed if pod_messages.report_in(line) is None
        ]
        return b"".join(line + b"\n" for line in users).decode(errors="replace")[offset:]

    def stacks(self, workers: list[str]) -> dict[str, str]:
        """Return worker → its stacks, as far as the launcher pod gets them."""
        if not self._is_asked:
            return dict.fromkeys(workers, "(only its launcher can ask for stacks)\n")
        return dict(self._answer("stacks", workers))

    def metrics(self, timeout_s: float) -> Any:
        """Return the program's metrics."""
        return self._answer("metrics", timeout_s)

    def history(self) -> Any:
        """Return the events of the run so far."""
        return self._answer("history")

    def picture(self) -> Any:
        """Return the program as plain data for a picture."""
        return self._answer("picture")

    def ask_to_restart(self, worker: str) -> None:
        """Ask for a restart of a worker."""
        self._answer("ask_to_restart", worker)

    def trace(self, seconds: float, timeout_s: float) -> Any:
        """Record for some seconds what the workers do, and return the recording."""
        return self._answer("trace", seconds, timeout_s=timeout_s)

    def _answer(self, method: str, *arguments: Any, timeout_s: float = _ANSWER_S) -> Any:
        """Ask the launcher pod, and return its answer.

        Raises:
            LaunchError: there is no launcher pod to ask, it has ended, or it doesn't answer in time; or this
                user may not read its answer.
        """
        if not self._is_asked:
            raise LaunchError(
                f"{self._name} has no supervisor in the cluster that could be asked: its launcher runs on"
                " another machine, where this works, or is gone"
            )
        question_id = os.urandom(8).hex()
        question = {"id": question_id, "method": method, "arguments": arguments}
        name = partial(launcher_manifests.answer, self._launcher, question_id)
        deadline = time.monotonic() + timeout_s
        send_at = 0.0
        while True:
            now = time.monotonic()
            if now >= deadline:
                break
            pod = self._launcher_pod()
            if not acts(pod):
                raise LaunchError(f"{self._name} has ended")
            is_sent = _commands_of(pod).question.get("id") == question_id
            # The question was not sent yet, or another script's question has replaced it.
            if not is_sent and now >= send_at:
                self._send_commands(self._sent_commands, question)
                send_at = now + _AGAIN_S
            time.sleep(_ANSWER_POLL_S)
            try:
                files = self._cluster.secret(name(0))
            except ApiError as error:
                if error.status == _FORBIDDEN:
                    permissions.check(self._cluster, permissions.ASKING)
                if error.status != _NOT_FOUND:
                    raise
                continue
            secrets = [name(i) for i in range(int(files[launcher_manifests.COUNT]))]
            parts = [self._cluster.secret(secret)[launcher_manifests.PART] for secret in secrets]
            for secret in secrets:
                self._cluster.delete("Secret", secret)
            value, failure = pickle.loads(zlib.decompress(b"".join(parts)))
            if failure is not None:
                raise failure
            return value
        raise LaunchError(f"the supervisor of {self._name} has not answered within {timeout_s:g} s")

    def _has_ended(self) -> bool:
        """Check once whether the program has ended, without waiting. If it was stopped, delete the run."""
        if self._is_deleted:
            return self._is_gone()
        if not self._is_asked:
            return not termination.is_there(self._cluster, self._name)
        pod = self._launcher_pod()
        commands = _commands_of(pod)
        own_commands = self._sent_commands
        self._was_stopped |= commands.stop
        if acts(pod) and time.monotonic() < self._gives_up_at:
            if self._is_to_go and (commands.stop, commands.kill) < (
                own_commands.stop,
                own_commands.kill,
            ):
                # Another script has overwritten our commands at the same moment.
                self._send_commands(own_commands)
            return False
        if not acts(pod) and self._may_be_replaced(pod):
            return False
        self._failure = self._failure or self._how_it_failed(pod)
        if not self._is_to_go:
            return True
        self._delete(self._skips_grace or acts(pod))
        return self._is_gone()

    def _may_be_replaced(self, pod: Manifest) -> bool:
        """Return True while another launcher pod may still come, and report how the program has ended."""
        if pod_status.is_over(pod) or self._is_to_go or self._was_stopped:
            return False
        if not termination.is_there(self._cluster, self._launcher):
            return False
        now = time.monotonic()
        self._expects_pod_until = min(self._expects_pod_until, now + _REPLACED_S)
        return now < self._expects_pod_until

    def _how_it_failed(self, pod: Manifest) -> ProgramFailed | LaunchError | None:
        if acts(pod):
            return LaunchError("its supervisor did not end when it was told to")
        self._ended = self._ended or launcher_state.ended_in(pod)
        if self._ended is not None:
            return self._ended.failure()
        if not pod_status.is_over(pod):
            return None if self._was_stopped else LaunchError(_DELETED)
        if pod["status"].get("phase") == "Succeeded":
            # The program has succeeded, though the pod could not write that.
            return None
        end = pod_status.ending(launcher_manifests.FACTS, pod, was_deleted=False)
        lost = "its supervisor was lost, and with it how the program has ended: "
        # A pod that fails in phase `start` has launched nothing, and its cause says why.
        return LaunchError(end.cause if end.phase == "start" else lost + end.cause)

    def _delete(self, at_once: bool) -> None:
        """Delete the objects that own all others: the objects of a launcher pod, and the root of the run."""
        if self._launcher:
            self._cluster.delete("Job", self._launcher, policy="Foreground")
            self._cluster.delete("ConfigMap", self._launcher, policy="Foreground")
        pods = [] if at_once else self._pods()
        grace_s = max((float(pod["spec"].get(_GRACE_S, 0)) for pod in pods), default=0.0)
        self._escalates_at = time.monotonic() + grace_s + _ESCALATE_S
        self._cluster.delete("ConfigMap", self._name, policy="Foreground")
        if at_once:
            pods = self._pods()
            owners = [owner for pod in pods for owner in pod["metadata"].get("ownerReferences", ())]
            for owner in (owner for owner in owners if owner["kind"] == "Job"):
                # Delete the Job before its pods, or it would replace them.
                self._cluster.delete("Job", owner["name"])
            for pod in pods:
                self._cluster.delete("Pod", pod["metadata"]["name"], grace_s=_SHORT_S)
        self._is_deleted = True

    def _is_gone(self) -> bool:
        """Return True if nothing is left of the run. Remove pods that have had enough time to end."""
        is_late = time.monotonic() >= self._escalates_at
        runs = filter(None, (self._name, self._launcher))
        return all(termination.is_gone(self._cluster, run, is_late=is_late) for run in runs)

    def _send_commands(
        self, commands: PodCommands, question: Mapping[str, Any] | None = None
    ) -> None:
        """Add commands to the commands that other scripts have sent to the launcher pod."""
        self._sent_commands = commands
        pod = self._launcher_pod()
        if pod:
            earlier = _commands_of(pod)
            both = replace(
                earlier,
                stop=earlier.stop or commands.stop,
                kill=earlier.kill or commands.kill,
                question=question or earlier.question,
            )
            annotations = {names.COMMANDS: both.text()}
            self._cluster.patch("Pod", pod["metadata"]["name"], {"annotations": annotations})

    def _launcher_pod(self) -> Manifest:
        return launcher_pod(self._cluster, self._launcher) if self._is_asked else {}

    def _pods(self) -> list[Manifest]:
        """Return all pods of the run and then of its launcher, the oldest first in each."""
        pods: list[Manifest] = []
        for run in filter(None, (self._name, self._launcher)):
            pods += sorted(self._cluster.list("Pod", f"{names.RUN}={run}")[0], key=_age)
        return pods

    def _printed(self, pod: Mapping[str, Any]) -> list[bytes]:
        """Return the lines that a pod has printed so far; none if there is no pod, or its log is gone."""
        if not pod_status.has_started(pod):
            return []
        try:
            printed = list(self._cluster.log(pod["metadata"]["name"], follow=False))
        except ApiError as error:
            if error.status in _NO_LOG:
                return []
            raise
        return [text for time, text in map(split_timestamp, printed) if time]


def launcher_pod(cluster: Cluster, launcher: str) -> Manifest:
    """Return the launcher pod that knows about the program; empty if there is no pod.

    This is the oldest one, since a later pod launches nothing. But if its node is lost, its object stays in
    the cluster although it was deleted. Then it is a later pod that has ended the program.
    """
    pods, _ = cluster.list("Pod", f"{names.RUN}={launcher}")
    pods.sort(key=_age)
    if not pods:
        return {}
    if "deletionTimestamp" in pods[0]["metadata"]:
        ended = [pod for pod in pods if pod_status.is_over(pod)]
        return (ended or pods)[0]
    return pods[0]


def acts(pod: Manifest) -> bool:
    """Return True if a launcher pod may act.

    A pod that has not started replaces another pod, and will launch nothing. A pod may have launched before
    its kubelet reports that the pod runs.
    """
    has_launched = launcher_state.read(pod, launcher_state.LAUNCHED) is not None
    return (has_launched or pod_status.has_started(pod)) and not pod_status.is_over(pod)


def _commands_of(pod: Manifest) -> PodCommands:
    annotations = pod.get("metadata", {}).get("annotations", {})
    return pod_messages.parse_commands(annotations.get(names.COMMANDS, ""))


def _age(pod: Manifest) -> tuple[int, str]:
    """Return a pod's attempt and the time of its creation, since a Job replaces a deleted pod."""
    metadata = pod["metadata"]
    return int(metadata["labels"][names.ATTEMPT]), metadata.get("creationTimestamp", "")


class _State(NamedTuple):
    """The state of a worker, its attempt, and the cause of that state."""

    name: str
    attempt: int = 0
    cause: str = ""


def _state_of(worker: str, pod: Mapping[str, Any] | None) -> _State:
    """Return a worker's state, from its pod."""
    if pod is None:
        return _State("pending")
    attempt = int(pod["metadata"]["labels"][names.ATTEMPT])
    if not pod_status.is_over(pod):
        name = "running" if pod_status.has_started(pod) else "starting"
        if "deletionTimestamp" in pod["metadata"]:
            name = "stopping"
        return _State(name, attempt, pod_status.why_pending(pod))
    end = pod_status.ending(pod_status.AttemptFacts(worker, attempt), pod, was_deleted=False)
    if end.is_failure and pod["status"].get("phase") == "Succeeded":
        # The worker has succeeded, but its last message was lost.
        return _State(outcome.SUCCEEDED, attempt)
    return _State(end.kind, attempt, end.cause)


def _state_at_end(worker: str, end: ProgramEnded) -> _State:
    """Return a worker's state, from the end of the program."""
    for failure in end.failures:
        if failure.worker == worker:
            return _State(failure.kind, failure.attempt, failure.cause)
    for name, workers in end.states.items():
        if worker in workers:
            return _State(name)
    return _State("ended")
