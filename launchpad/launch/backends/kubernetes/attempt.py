"""An attempt of a worker: what its launcher has recorded of it, and its objects in the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from launchpad.launch.backends.kubernetes import pod_status
from launchpad.launch.backends.kubernetes.api.client import ApiError, Cluster, Manifest
from launchpad.launch.backends.kubernetes.api.log_follower import LogFollower
from launchpad.launch.backends.kubernetes.bundle import packed_secrets
from launchpad.launch.backends.kubernetes.manifests import manifest, names
from launchpad.launch.backends.kubernetes.manifests.metadata import Run
from launchpad.launch.backends.kubernetes.manifests.pod_spec import carries_state
from launchpad.launch.backends.kubernetes.pod_messages import PodCommands, StateChunk
from launchpad.launch.backends.kubernetes.pod_status import AttemptFacts
from launchpad.launch.plan import WorkerPlan

_EXISTS = 409


@dataclass
class PodAttempt:
    """What is recorded of one attempt.

    Attributes:
        facts: What the launcher itself has recorded.
        pod: Its pod as the cluster has it; empty while there is none.
        follower: Reads its log, once it runs.
        is_read: All of its log was read.
        commands: The commands for its pod.
        noted: Why it is pending, as reported to the user.
        state: What it has left for the next attempt.
        is_over: Its end was reported.
        was_deleted: Its pod was deleted, not necessarily by the launcher.
    """

    facts: AttemptFacts
    pod: dict[str, Any] = field(default_factory=dict)
    follower: LogFollower | None = None
    is_read: bool = False
    commands: PodCommands = field(default_factory=PodCommands)
    noted: str = ""
    state: list[StateChunk] = field(default_factory=list)
    is_over: bool = False
    was_deleted: bool = False

    @property
    def pod_name(self) -> str:
        """Empty while it has no pod."""
        return str(self.pod.get("metadata", {}).get("name", ""))

    @property
    def uid(self) -> str:
        """Distinguishes its pod from others of that name."""
        return str(self.pod.get("metadata", {}).get("uid", ""))


class Jobs:
    """The Jobs of one run. Methods raise ApiError or Unreachable; none waits for a pod."""

    def __init__(self, cluster: Cluster, run: Run) -> None:
        self._cluster, self._run = cluster, run

    def create(self, attempt: PodAttempt, plan: WorkerPlan, state: bytes) -> None:
        """Creates the attempt's Job, and the Secrets with its state.

        Args:
            state: What the attempt before has left, packed; or nothing.
        """
        number = attempt.facts.attempt
        state_parts = packed_secrets.packed(state) if state else []
        for secret in manifest.state(self._run, plan, number, state_parts):
            self._create(secret)
        job = manifest.job(self._run, plan, number, len(state_parts))
        attempt.commands = replace(attempt.commands, carries=carries_state(job))
        job["spec"]["template"]["metadata"]["annotations"][names.COMMANDS] = attempt.commands.text()
        self._create(job)

    def delete(self, attempt: PodAttempt) -> None:
        """Deletes the Job, and so its pod; a pod that is deleted alone would be replaced by the Job."""
        facts = attempt.facts
        self._cluster.delete("Job", names.job_name(self._run.name, facts.worker, facts.attempt))

    def remove(self, attempt: PodAttempt) -> None:
        """Deletes what is left of an attempt, which must not answer in place of the next one."""
        self.delete(attempt)
        if attempt.pod_name and not pod_status.is_over(attempt.pod):
            self._cluster.delete("Pod", attempt.pod_name, grace_s=0)

    def send_commands(self, attempt: PodAttempt) -> None:
        """Writes them into the annotation of its pod."""
        self._cluster.annotate(attempt.pod_name, {names.COMMANDS: attempt.commands.text()})

    def _create(self, each: Manifest) -> None:
        try:
            self._cluster.create(each)
        # created by a call whose answer was lost
        except ApiError as error:
            if error.status != _EXISTS:
                raise


def why_no_pod(cluster: Cluster, job: str) -> str:
    """Why the cluster creates no pod, a quota or a webhook, say: its last warning; empty if there is none."""
    found = cluster.events("Job", job)
    bad = [each for each in found if each.get("type") == "Warning" and each.get("message")]
    bad.sort(key=lambda each: str(each.get("lastTimestamp")))
    return f"{bad[-1].get('reason', '')}: {bad[-1]['message']}" if bad else ""
