"""How a pod has ended, or why it does not begin: from what the cluster says of it. Pure.

What the worker said itself counts most; then what the kubelet says of the container; then of the pod.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from launchpad import outcome
from launchpad.launch.backends.kubernetes.cluster.cluster import CONTAINER
from launchpad.launch.backends.kubernetes.post import letters
from launchpad.outcome import Outcome

Pod = Mapping[str, Any]

_SIGNALLED = 128
_HOPELESS = {
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
}
UNSAID = "the cluster does not say why"
_IMAGE = {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"}


@dataclass(frozen=True)
class Told:
    """What the launcher itself knows of an attempt.

    Attributes:
      said: How it ended, in its own words.
      asked: It was told to stop; `killed`: to end.
      is_ready: Its worker was.
    """

    worker: str
    attempt: int
    said: Outcome | None = None
    asked: bool = False
    killed: bool = False
    is_ready: bool = False


def is_over(pod: Pod) -> bool:
    """Whether nothing of it runs any more."""
    return _status(pod).get("phase") in ("Succeeded", "Failed") or _terminated(pod) is not None


def has_started(pod: Pod) -> bool:
    """Whether its container runs, or has run."""
    state = _container(pod).get("state", {})
    return "running" in state or "terminated" in state


def is_idle(pod: Pod) -> bool:
    """Whether nothing of it runs, nor will: it is over, or was deleted before it began."""
    return is_over(pod) or ("deletionTimestamp" in pod["metadata"] and not has_started(pod))


def why_pending(pod: Pod) -> str:
    """Why it does not begin, in the words of the scheduler or of the kubelet; empty if nothing is wrong."""
    waiting = _container(pod).get("state", {}).get("waiting", {})
    if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
        return ": ".join(filter(None, (waiting["reason"], waiting.get("message", ""))))
    for condition in _status(pod).get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return ": ".join(
                filter(None, (condition.get("reason", ""), condition.get("message", "")))
            )
    return ""


def is_hopeless(pod: Pod) -> bool:
    """Whether waiting changes nothing."""
    return _container(pod).get("state", {}).get("waiting", {}).get("reason") in _HOPELESS


def not_begun(
    told: Told, pod: Pod, asked: str, patience_s: float, why_no_pod: str = UNSAID
) -> Outcome:
    """The end of an attempt whose pod has not begun in time.

    Args:
      asked: What it asks for, in words.
      why_no_pod: Why there is none, where there is none.
    """
    if not pod:
        cause = f"the cluster has made no pod for it in {patience_s:g} s: {why_no_pod}"
        hint = "`kubectl describe job` and `kubectl describe quota` tell more"
        return Outcome(told.worker, outcome.FAILED, "start", told.attempt, cause, hint=hint)
    why = why_pending(pod) or UNSAID
    reason = why.partition(":")[0]
    waited = "" if reason in _HOPELESS else f" for {patience_s:g} s"
    cause = f"its pod was pending{waited}: {why}"
    if reason == "Unschedulable":
        cause += f" (it asks for {asked or 'nothing in particular'})"
        hint = "ask for less, or add nodes; `kubectl describe nodes` tells what they have, and who has it now"
    elif reason in _IMAGE:
        hint = "see the image's name, and whether the cluster may pull it"
    else:
        hint = "`kubectl describe pod` tells more; a longer pending_timeout_s waits longer"
    return Outcome(told.worker, outcome.FAILED, "start", told.attempt, cause, hint=hint)


def is_clear(told: Told, was_deleted: bool) -> bool:
    """Whether what the worker said needs no word of the cluster's, which may come seconds later.

    Only that knows whether SIGKILL was for want of memory, and who has asked the worker to stop.
    """
    if told.said is None or told.said.signal == "SIGKILL":
        return False
    return told.asked or was_deleted or told.said.kind != outcome.STOPPED


def ending(told: Told, pod: Pod, was_deleted: bool) -> Outcome:
    """The end of an attempt whose pod is over, or is not there any more."""
    ended = replace(_ending(told, pod, was_deleted), worker=told.worker, attempt=told.attempt)
    host = pod.get("spec", {}).get("nodeName", "")
    return replace(ended, host=host or ended.host)


def _ending(told: Told, pod: Pod, was_deleted: bool) -> Outcome:
    terminated = _terminated(pod) or {}
    said = told.said or letters.outcome_in(terminated.get("message") or "")
    if terminated.get("reason") == "OOMKilled" and (said is None or said.signal == "SIGKILL"):
        return _out_of_memory(told, pod)
    is_unasked = said is not None and said.kind == outcome.STOPPED and not told.asked
    if said is not None and not (is_unasked and (was_deleted or _status(pod).get("reason"))):
        return said
    if told.asked:
        cause = "killed when it did not stop" if told.killed else "stopped with its pod"
        return _outcome(told, outcome.STOPPED, cause)
    if was_deleted:
        return _outcome(told, outcome.LOST, "its pod was deleted, and not by us")
    return _died(told, pod, terminated)


def _died(told: Told, pod: Pod, terminated: Mapping[str, Any]) -> Outcome:
    reason = _status(pod).get("reason", "")
    if reason:  # Evicted, NodeLost, DeadlineExceeded, Shutdown …
        message = _status(pod).get("message", "")
        cause = f"the cluster has ended its pod: {reason}" + (f": {message}" if message else "")
        return _outcome(told, outcome.LOST, cause)
    if not terminated:
        return _outcome(told, outcome.LOST, "nobody knows how its container has ended")
    code = (
        int(terminated.get("signal") or 0) + _SIGNALLED
        if terminated.get("signal")
        else terminated["exitCode"]
    )
    if code > _SIGNALLED:
        name = _signal_name(code - _SIGNALLED)
        return replace(
            _outcome(told, outcome.FAILED, f"its container was killed by {name}"), signal=name
        )
    if terminated.get("reason") in ("ContainerCannotRun", "StartError"):
        cause = f"its container cannot run: {terminated.get('message', '')}"
        return replace(_outcome(told, outcome.FAILED, cause), phase="start")
    cause = f"its container exited with code {code} without a word"
    return replace(_outcome(told, outcome.FAILED, cause), exit_code=code)


def _out_of_memory(told: Told, pod: Pod) -> Outcome:
    limits = pod["spec"]["containers"][0].get("resources", {}).get("limits", {})
    limit = (
        f"its limit is {limits['memory']} bytes" if "memory" in limits else "its node had no more"
    )
    ended = _outcome(told, outcome.FAILED, f"killed by SIGKILL: out of memory (OOMKilled); {limit}")
    hint = "ask for more with Resources(memory=…), or use less"
    return replace(ended, signal="SIGKILL", out_of_memory=True, hint=hint)


def _outcome(told: Told, kind: str, cause: str) -> Outcome:
    return Outcome(told.worker, kind, "run" if told.is_ready else "init", told.attempt, cause)


def _status(pod: Pod) -> Mapping[str, Any]:
    status: Mapping[str, Any] = pod.get("status", {})
    return status


def _container(pod: Pod) -> Mapping[str, Any]:
    """The status of the worker's container; a user's patch may have added others."""
    containers = _status(pod).get("containerStatuses") or [{}]
    return next((c for c in containers if c.get("name") == CONTAINER), containers[0])


def _terminated(pod: Pod) -> Mapping[str, Any] | None:
    terminated: Mapping[str, Any] | None = _container(pod).get("state", {}).get("terminated")
    return terminated


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
