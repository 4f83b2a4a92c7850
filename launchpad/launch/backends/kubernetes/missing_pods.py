"""Reports about attempts for which the cluster makes no pod: because of a quota or a webhook, say."""

from __future__ import annotations

import time
from collections.abc import Callable

from launchpad.launch.backends.action_thread import Actions
from launchpad.launch.backends.kubernetes import attempt as attempts
from launchpad.launch.backends.kubernetes import pod_status
from launchpad.launch.backends.kubernetes.api.client import Cluster, ClusterError
from launchpad.launch.backends.kubernetes.attempt import PodAttempt
from launchpad.launch.backends.kubernetes.manifests import names
from launchpad.runtime.events import Event, WorkerNote

_NO_POD_S = 5.0
"""Seconds that an attempt may have no pod before the reason is reported. An answer of the cluster is used for
as long, because 1,000 attempts may have no pod at the same time."""


class MissingPods:
    """The attempts of a run that have a Job, but perhaps no pod. Call its methods in the actions' thread.

    Args:
        give_up: Called with an attempt that will never get a pod.
    """

    def __init__(
        self,
        cluster: Cluster,
        run: str,
        actions: Actions,
        report: Callable[[Event], None],
        give_up: Callable[[PodAttempt], object],
    ) -> None:
        self._cluster = cluster
        self._run = run
        self._actions = actions
        self._report = report
        self._give_up = give_up
        self._expected: list[tuple[float, PodAttempt]] = []
        self._whys: dict[str, str] = {}
        self._default_why = pod_status.NO_REASON
        self._asked_at = 0.0

    def expect(self, attempt: PodAttempt) -> None:
        """Expect that an attempt, whose Job was created, soon has a pod."""
        if not self._expected:
            self._actions.call_later(_NO_POD_S, self._check)
        self._expected.append((time.monotonic(), attempt))

    def why(self, attempt: PodAttempt) -> str:
        """Return why an attempt has no pod."""
        if time.monotonic() - self._asked_at > _NO_POD_S or not self._asked_at:
            self._ask()
        job = names.job_name(self._run, attempt.worker, attempt.number)
        return self._whys.get(job, self._default_why)

    def _check(self) -> None:
        """Report those that have had no pod for a while, all those with the same reason in one note."""
        now = time.monotonic()
        podless = [(at, a) for at, a in self._expected if not (a.is_over or a.pod_name)]
        late = [attempt for at, attempt in podless if now - at >= _NO_POD_S]
        self._expected = [(at, attempt) for at, attempt in podless if now - at < _NO_POD_S]
        if self._expected:
            self._actions.call_later(_NO_POD_S, self._check)
        by_reason: dict[str, list[PodAttempt]] = {}
        for attempt in late:
            by_reason.setdefault(self.why(attempt), []).append(attempt)
        for why, same in by_reason.items():
            worker = same[0].worker
            who = f"{worker} and {len(same) - 1} others have" if len(same) > 1 else f"{worker} has"
            self._report(WorkerNote(worker, f"{who} no pod yet: {why}"))
            if pod_status.can_have_no_pod(why):
                for attempt in same:
                    self._give_up(attempt)

    def _ask(self) -> None:
        try:
            self._whys = attempts.why_no_pods(self._cluster)
            self._default_why = pod_status.NO_REASON
        except ClusterError as error:
            self._whys = {}
            self._default_why = str(error)
        self._asked_at = time.monotonic()
