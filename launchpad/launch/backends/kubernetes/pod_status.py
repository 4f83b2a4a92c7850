"""Outcomes from the cluster's status of a pod: how the pod ended, or why it doesn't start. Pure.

The worker's own report takes precedence, then the kubelet's status of the container, then its status of the
pod.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from launchpad import outcome
from launchpad.launch.backends.kubernetes import pod_messages
from launchpad.launch.backends.kubernetes.api.client import CONTAINER
from launchpad.outcome import Outcome

PodObject = Mapping[str, Any]

_UNREACHABLE = "node.kubernetes.io/unreachable"
"""The taint of a node that has fallen silent."""

_UNKNOWN_END = {"Unknown", "ContainerStatusUnknown"}
"""The reasons that containerd and the kubelet give for the end of a container that they find gone."""

_SIGNALLED = 128
_MUST_SPECIFY = "must specify"
"""The words of a quota that counts a resource of which a pod has no request or limit."""

_CANNOT_START = {"ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError"}
NO_REASON = "the cluster does not say why"
_TOO_MUCH = re.compile(r"(EmptyDir|ephemeral).* exceeds ")
"""The words of a kubelet that evicts a pod because it has written too much."""

_IMAGE = {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"}


@dataclass
class AttemptFacts:
    """The launcher's own record of an attempt.

    Attributes:
        reported: The outcome that its pod has reported.
        asked: True if it was asked to stop.
        killed: True if it was asked to end at once.
        is_ready: True if its worker was ready.
    """

    worker: str
    number: int
    reported: Outcome | None = None
    asked: bool = False
    killed: bool = False
    is_ready: bool = False


def is_over(pod: PodObject) -> bool:
    """Return True if nothing runs in the pod any more."""
    is_done = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return is_done or "terminated" in _state(pod)


def has_started(pod: PodObject) -> bool:
    """Return True if the pod's container runs, or has run."""
    return "running" in _state(pod) or "terminated" in _state(pod)


def is_ready(pod: PodObject) -> bool:
    """Return True if the cluster calls the pod ready. A pod on a node that falls silent is not."""
    conditions = pod.get("status", {}).get("conditions", ())
    return ("Ready", "True") in [(c["type"], c["status"]) for c in conditions]


def silent_node(pod: PodObject) -> str:
    """Return a note about a pod's node that has fallen silent. It is the same for other pods there."""
    seconds = [
        toleration["tolerationSeconds"]
        for toleration in pod["spec"]["tolerations"]
        if toleration.get("key") == _UNREACHABLE and "tolerationSeconds" in toleration
    ]
    duration = f"for {seconds[0]} s more" if seconds else "for long"
    return (
        f"node {pod['spec']['nodeName']} does not answer the cluster; it may still run its workers. If it"
        f" does not answer {duration}, the cluster deletes their pods, and they can start again elsewhere"
    )


def why_pending(pod: PodObject) -> str:
    """Return why a pod doesn't start, as the scheduler or the kubelet reports; empty if nothing is wrong."""
    waiting = _state(pod).get("waiting", {})
    if waiting.get("reason") in (None, "ContainerCreating", "PodInitializing"):
        conditions = pod.get("status", {}).get("conditions", ())
        refusals = (c for c in conditions if (c["type"], c["status"]) == ("PodScheduled", "False"))
        waiting = next(refusals, {})
    return ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))


def cannot_start(pod: PodObject) -> bool:
    """Return True if the pod will never start, however long one waits."""
    return _state(pod).get("waiting", {}).get("reason") in _CANNOT_START


def can_have_no_pod(why_no_pod: str) -> bool:
    """Return True if the cluster will never make this pod, however long one waits."""
    return _MUST_SPECIFY in why_no_pod


def not_begun(
    facts: AttemptFacts,
    pod: PodObject,
    request: str,
    max_wait_s: float,
    why_no_pod: str = NO_REASON,
) -> Outcome:
    """Return the outcome of an attempt whose pod did not start in time. `request` lists its resources."""
    why = why_pending(pod) or NO_REASON
    reason = why.partition(":")[0]
    waited = "" if reason in _CANNOT_START else f" for {max_wait_s:g} s"
    cause = f"its pod was pending{waited}: {why}"
    if not pod:
        cause = f"the cluster has made no pod for it in {max_wait_s:g} s: {why_no_pod}"
        hint = "`kubectl describe job` and `kubectl describe quota` tell more"
        if can_have_no_pod(why_no_pod):
            cause = f"the cluster makes no pod for it: {why_no_pod}"
            hint = (
                "that quota counts resources of which every pod has to say how much it takes: set"
                " default_resources={'cpu': …, 'memory': …}, which workers get that ask for nothing"
            )
        elif "exceeded quota" in why_no_pod:
            hint += "; ask for less by Resources or default_resources, or for a larger quota"
    elif reason == "Unschedulable":
        cause += f" (it asks for {request or 'nothing in particular'})"
        hint = "ask for less, or add nodes; `kubectl describe nodes` tells what they have, and who has it now"
    elif reason in _IMAGE:
        hint = "see the image's name, and whether the cluster may pull it"
    else:
        hint = "`kubectl describe pod` tells more; a longer pending_timeout_s waits longer"
    return Outcome(facts.worker, outcome.FAILED, "start", facts.number, cause, hint=hint)


def is_clear(facts: AttemptFacts, was_deleted: bool) -> bool:
    """Return True if the worker's own report is enough. The cluster's report may come seconds later.

    Only the cluster says whether SIGKILL came for lack of memory, and whether the cluster stopped the pod.
    """
    if facts.reported is None or facts.reported.signal == "SIGKILL":
        return False
    return facts.asked or was_deleted or facts.reported.kind != outcome.STOPPED


def ending(facts: AttemptFacts, pod: PodObject, was_deleted: bool) -> Outcome:
    """Return the outcome of an attempt whose pod has ended, or doesn't exist any more."""
    end = _ending(facts, pod, was_deleted)
    host = pod.get("spec", {}).get("nodeName", "") or end.host
    return replace(end, worker=facts.worker, attempt=facts.number, host=host)


def _ending(facts: AttemptFacts, pod: PodObject, was_deleted: bool) -> Outcome:
    status = pod.get("status", {})
    terminated = _state(pod).get("terminated") or {}
    reported = facts.reported or pod_messages.outcome_in(terminated.get("message") or "")
    if terminated.get("reason") == "OOMKilled" and (
        reported is None or reported.signal == "SIGKILL"
    ):
        limits = pod["spec"]["containers"][0].get("resources", {}).get("limits", {})
        limit = "its node had no more"
        if "memory" in limits:
            limit = f"its limit is {limits['memory']} bytes"
        cause = f"killed by SIGKILL: out of memory (OOMKilled); {limit}"
        hint = "ask for more with Resources(memory=…), or use less"
        return _outcome(
            facts, outcome.FAILED, cause, signal="SIGKILL", out_of_memory=True, hint=hint
        )
    is_unasked = reported is not None and reported.kind == outcome.STOPPED and not facts.asked
    if reported is not None and not (is_unasked and (was_deleted or status.get("reason"))):
        return reported
    if facts.asked:
        cause = "killed when it did not stop" if facts.killed else "stopped with its pod"
        return _outcome(facts, outcome.STOPPED, cause)
    if was_deleted:
        return _outcome(facts, outcome.LOST, "its pod was deleted, and not by us")
    reason = status.get("reason", "")
    if reason:  # Evicted, NodeLost, DeadlineExceeded, Shutdown …
        message = status.get("message", "")
        cause = f"the cluster has ended its pod: {reason}" + (f": {message}" if message else "")
        hint = ""
        if _TOO_MUCH.search(message):
            hint = (
                "for more room, set default_resources={'ephemeral-storage': …}; the room in /dev/shm is"
                " that of Resources(memory=…)"
            )
        return _outcome(facts, outcome.LOST, cause, hint=hint)
    if not terminated:
        return _outcome(facts, outcome.LOST, "it is unknown how its container has ended")
    if terminated.get("reason") in _UNKNOWN_END:
        cause = "its node doesn't know how its container has ended; the node may have booted again"
        return _outcome(facts, outcome.LOST, cause)
    code = terminated["exitCode"]
    number = int(terminated.get("signal") or 0) or max(code - _SIGNALLED, 0)
    if number:
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return _outcome(facts, outcome.FAILED, f"its container was killed by {name}", signal=name)
    if terminated.get("reason") in ("ContainerCannotRun", "StartError"):
        cause = f"its container cannot run: {terminated.get('message', '')}"
        return _outcome(facts, outcome.FAILED, cause, phase="start")
    cause = f"its container exited with code {code} without a word"
    return _outcome(facts, outcome.FAILED, cause, exit_code=code)


def _outcome(facts: AttemptFacts, kind: str, cause: str, **more: Any) -> Outcome:
    phase = "run" if facts.is_ready else "init"
    return replace(Outcome(facts.worker, kind, phase, facts.number, cause), **more)


def _state(pod: PodObject) -> Mapping[str, Any]:
    """Return the state of the worker's container. A user's patch may have added other containers."""
    containers = pod.get("status", {}).get("containerStatuses") or [{}]
    worker = next((c for c in containers if c.get("name") == CONTAINER), containers[0])
    state: Mapping[str, Any] = worker.get("state", {})
    return state
