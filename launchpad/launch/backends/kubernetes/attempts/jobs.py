"""Jobs: attempts as the cluster has them. Each method raises Refused or Unreachable; none waits for a pod."""

from __future__ import annotations

from dataclasses import replace

from launchpad.launch.backends.kubernetes.attempts import endings
from launchpad.launch.backends.kubernetes.attempts.attempt import Attempt
from launchpad.launch.backends.kubernetes.cluster.cluster import Cluster, Manifest, Refused
from launchpad.launch.backends.kubernetes.objects import labels, manifest, names
from launchpad.launch.backends.kubernetes.objects.pod_spec import carries_state
from launchpad.launch.backends.kubernetes.objects.run import Run
from launchpad.launch.backends.kubernetes.post import parcels
from launchpad.launch.plan import WorkerPlan

_EXISTS = 409


class Jobs:
    """Those of one run."""

    def __init__(self, cluster: Cluster, run: Run) -> None:
        self._cluster, self._run = cluster, run

    def create(self, attempt: Attempt, plan: WorkerPlan, state: bytes) -> None:
        """Makes the attempt's Job, and what its pod is given.

        Args:
          state: What the attempt before has left, packed; or nothing.
        """
        number = attempt.told.attempt
        state_parts = parcels.packed(state) if state else []
        for secret in manifest.state(self._run, plan, number, state_parts):
            self._make(secret)
        job = manifest.job(self._run, plan, number, len(state_parts))
        attempt.wishes = replace(attempt.wishes, carries=carries_state(job))
        job["spec"]["template"]["metadata"]["annotations"][labels.ORDERS] = attempt.wishes.text()
        self._make(job)

    def why_no_pod(self, attempt: Attempt) -> str:
        """What keeps the cluster from making a pod, a quota or a webhook, say; empty if it does not tell."""
        told = attempt.told
        name = names.job_name(self._run.name, told.worker, told.attempt)
        return why_no_pod(self._cluster, name)

    def delete(self, attempt: Attempt) -> None:
        """The Job, and so its pod: one that is still there would replace a pod that was deleted by itself."""
        told = attempt.told
        self._cluster.delete("Job", names.job_name(self._run.name, told.worker, told.attempt))

    def remove(self, attempt: Attempt) -> None:
        """What is left of an attempt: one that was given up must not answer in the place of the next."""
        self.delete(attempt)
        if attempt.pod_name and not endings.is_over(attempt.pod):
            self._cluster.delete("Pod", attempt.pod_name, grace_s=0)

    def send_wishes(self, attempt: Attempt) -> None:
        """Lets its pod know them."""
        self._cluster.annotate(attempt.pod_name, {labels.ORDERS: attempt.wishes.text()})

    def _make(self, each: Manifest) -> None:
        """Makes it, if that was not done by a call whose answer was lost."""
        try:
            self._cluster.create(each)
        except Refused as refused:
            if refused.status != _EXISTS:
                raise


def why_no_pod(cluster: Cluster, job: str) -> str:
    """What the cluster has noted last of a Job without a pod; empty if it has not."""
    found = cluster.events("Job", job)
    bad = sorted(filter(_is_bad, found), key=lambda each: str(each.get("lastTimestamp")))
    return f"{bad[-1].get('reason', '')}: {bad[-1]['message']}" if bad else ""


def _is_bad(event: Manifest) -> bool:
    return event.get("type") == "Warning" and bool(event.get("message"))
