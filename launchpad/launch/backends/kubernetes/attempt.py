"""An attempt of a worker: the launcher's record of it, and its objects in the cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from launchpad.launch.backends.kubernetes.api.client import ApiError, Cluster, Manifest
from launchpad.launch.backends.kubernetes.api.log_follower import LogFollower
from launchpad.launch.backends.kubernetes.manifests import manifest, names
from launchpad.launch.backends.kubernetes.manifests.names import STATE, Run
from launchpad.launch.backends.kubernetes.manifests.pod_spec import worker_container
from launchpad.launch.backends.kubernetes.pod_inputs import pod_input
from launchpad.launch.backends.kubernetes.pod_messages import Chunk, PodCommands
from launchpad.launch.backends.kubernetes.pod_status import NO_REASON, AttemptFacts
from launchpad.launch.plan import WorkerPlan

_EXISTS = 409
_NODE_NOT_READY = "NodeNotReady"
"""The reason of the event about a pod whose node has fallen silent."""


@dataclass
class PodAttempt(AttemptFacts):
    """The launcher's full record of one attempt, including its pod.

    Attributes:
        pod: Its pod as the cluster describes it. Like `pod_name`, it is empty while there is no pod.
        follower: The reader of its log, once the pod runs.
        is_read: True if its whole log was read.
        commands: The commands for its pod.
        is_sending: True if the commands will be sent anyway, with all changes until then.
        is_job_deleted: True if its Job was deleted.
        noted: The reason why its pod is pending, as reported to the user.
        state: The parts of the state that it has left for the next attempt.
        pieces: Kind of event → the pieces, by index, that have arrived. A large event takes several lines.
        has_result: True if all lines of its result have arrived and it was reported.
        is_over: True if its end was reported.
        was_deleted: True if its pod was deleted, not necessarily by the launcher.
    """

    pod: dict[str, Any] = field(default_factory=dict)
    pod_name: str = ""
    follower: LogFollower | None = None
    is_read: bool = False
    commands: PodCommands = field(default_factory=PodCommands)
    is_sending: bool = False
    is_job_deleted: bool = False
    noted: str = ""
    state: list[Chunk] = field(default_factory=list)
    pieces: dict[str, dict[int, Chunk]] = field(default_factory=dict)
    has_result: bool = False
    is_over: bool = False
    was_deleted: bool = False


@dataclass(frozen=True)
class Jobs:
    """The Jobs of one run. Its methods raise ApiError or Unreachable, and don't wait for pods."""

    _cluster: Cluster
    _run: Run

    def create(self, attempt: PodAttempt, plan: WorkerPlan, state: bytes) -> None:
        """Create the attempt's Job, and Secrets with the state that the previous attempt has left."""
        parts = pod_input.packed(state) if state else []
        job = manifest.job(self._run, plan, attempt.number, len(parts))
        annotations = job["spec"]["template"]["metadata"]["annotations"]
        annotations[names.COMMANDS] = attempt.commands.text()
        for run_object in (*manifest.state(self._run, plan, attempt.number, parts), job):
            try:
                self._cluster.create(run_object)
            except ApiError as error:
                # 409 means that an earlier call has created it, and its answer was lost.
                if error.status != _EXISTS:
                    raise

    def carries(self, plan: WorkerPlan) -> bool:
        """Return True if a worker's state is deleted with its pod, and must be copied to the next attempt.

        That is so unless a patch has put a volume there, or the run keeps state in one.
        """
        spec = manifest.job(self._run, plan, 1)["spec"]["template"]["spec"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        state_volumes = [
            volumes.get(mount["name"], ())
            for mount in worker_container(spec)["volumeMounts"]
            if mount["mountPath"] == STATE
        ]
        return not self._run.mounts_state and all("emptyDir" in volume for volume in state_volumes)

    def delete(self, attempt: PodAttempt) -> None:
        """Delete the Job, and so its pod. If only the pod were deleted, the Job would replace it."""
        if not attempt.is_job_deleted:
            job = names.job_name(self._run.name, attempt.worker, attempt.number)
            self._cluster.delete("Job", job)
            attempt.is_job_deleted = True

    def send_commands(self, attempt: PodAttempt) -> None:
        """Write the attempt's commands into the annotation of its pod."""
        annotations = {names.COMMANDS: attempt.commands.text()}
        self._cluster.patch("Pod", attempt.pod_name, {"annotations": annotations})


def is_node_silent(cluster: Cluster, pod: str) -> bool:
    """Return True if the cluster has said of a pod that its node doesn't answer."""
    return any(event.get("reason") == _NODE_NOT_READY for event in cluster.warnings("Pod", pod))


def why_no_pod(cluster: Cluster, job: str) -> str:
    """Return the cluster's last warning, if any, about why it creates no pod: a quota or a webhook, say."""
    return _reasons(cluster.warnings("Job", job)).get(job, NO_REASON)


def why_no_pods(cluster: Cluster) -> dict[str, str]:
    """Return the cluster's last warning about each Job that it has warned about."""
    return _reasons(cluster.warnings("Job"))


def _reasons(events: Iterable[Manifest]) -> dict[str, str]:
    """Return the last warning about each object, by the object's name."""
    warnings = [event for event in events if event.get("message")]
    warnings.sort(key=lambda event: str(event.get("lastTimestamp")))
    return {
        warning["involvedObject"]["name"]: f"{warning.get('reason', '')}: {warning['message']}"
        for warning in warnings
    }
