"""Reaper: how attempts are made to end, by whatever it takes.

wish     kill=True, by an annotation        its pod ends the worker, with its stacks in the log
5 s      the Job is deleted                 SIGTERM to the pod, then SIGKILL
+ 0.5 s  the pod, with a grace of 1 s       the controller of Jobs had not noticed
+ 15 s   the pod, with none                 its node is dead: it is taken off the list
+ 60 s   it is lost                         the cluster does not answer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from launchpad import outcome
from launchpad.launch.backend import Noted, Report
from launchpad.launch.backends.actions import Actions
from launchpad.launch.backends.kubernetes.attempts.attempt import Attempt
from launchpad.launch.backends.kubernetes.attempts.jobs import Jobs
from launchpad.launch.backends.kubernetes.cluster.cluster import (
    Cluster,
    Refused,
    Unreachable,
    is_passing,
)
from launchpad.launch.backends.kubernetes.post.letters import Wishes
from launchpad.outcome import Outcome

_FORGOTTEN_S = 0.5
"""How long the controller of Jobs may take to notice that one was deleted."""

_LAST_WORDS_S = 5.0
"""How long a pod may take to hear that it shall end its worker, and to do it."""

_INSIST_S = 15.0
"""How long a pod that is killed may take, before it is taken off the list whatever its node does."""

_ABANDONED_S = 60.0
"""How long somebody who ends a pod waits for a cluster that does not answer."""

_AGAIN_S = 1.0

_REPEAT_S = 2.0
"""After how long a wish is said once more: a kubelet that is just writing what its pods are told may miss a
change, and looks again by itself only after a minute or two."""


class Reaper:
    """For all attempts of a launch; in the thread of its actions.

    Args:
      actions: Where what is to be done later is done.
      end: Told of an attempt that is over without its pod saying so, and how.
    """

    def __init__(
        self,
        cluster: Cluster,
        jobs: Jobs,
        actions: Actions,
        report: Callable[[Report], None],
        end: Callable[[Attempt, Outcome], None],
    ) -> None:
        self._cluster, self._jobs, self._actions = cluster, jobs, actions
        self._report, self._end = report, end
        self.is_hurried = False

    def ask(self, attempt: Attempt, *, restarts: bool) -> None:
        """To stop: by SIGTERM, or by an annotation if it is to save what it knows."""
        attempt.told = replace(attempt.told, asked=True)
        if restarts and attempt.follower is not None:
            self.wish(attempt, {"restarts": True})
        else:
            self._delete(attempt)

    def kill(self, attempt: Attempt) -> None:
        """By its pod first, if that runs and nobody is in a hurry."""
        attempt.told = replace(attempt.told, asked=True, killed=True)
        if attempt.follower is not None and not self.is_hurried:
            self._actions.later(_LAST_WORDS_S, self._end_pod, attempt)
            self.wish(attempt, {"kill": True})
        else:
            self._end_pod(attempt)

    def wish(self, attempt: Attempt, new: Mapping[str, Any]) -> None:
        """Lets its pod know, if it has one: one that begins later is told then."""
        attempt.wishes = replace(attempt.wishes, **new)
        if attempt.pod_name and not attempt.is_over:
            self._urge(attempt, partial(self._jobs.send_wishes, attempt))
            self._actions.later(_REPEAT_S, self._repeat, attempt, attempt.wishes)

    def on_deleted(self, attempt: Attempt, grace_s: float) -> None:
        """Somebody has deleted its pod: no other may take its place; its node may be dead."""
        attempt.was_deleted = True
        self._actions.later(grace_s + _INSIST_S, self._end_pod, attempt)
        self.delete_job(attempt)

    def delete_job(self, attempt: Attempt) -> None:
        """So that there will be no further pod."""
        self._urge(attempt, partial(self._jobs.delete, attempt))

    def delete_pod(self, attempt: Attempt, pod: str, grace_s: float = 0) -> None:
        """The one of that name."""
        self._urge(attempt, partial(self._cluster.delete, "Pod", pod, grace_s=grace_s))

    def lose(self, attempt: Attempt, why: str) -> None:
        """Ends it as lost, if it is not over."""
        told = attempt.told
        if not attempt.is_over:
            self._end(attempt, Outcome(told.worker, outcome.LOST, "run", told.attempt, why))

    def _repeat(self, attempt: Attempt, wishes: Wishes) -> None:
        is_deleted = attempt.told.asked and not (wishes.restarts or wishes.kill)
        is_newest = attempt.wishes == wishes
        if is_newest and not is_deleted and not attempt.is_over:
            attempt.wishes = replace(wishes, repeats=wishes.repeats + 1)
            self._urge(attempt, partial(self._jobs.send_wishes, attempt))

    def _delete(self, attempt: Attempt) -> None:
        self._urge(attempt, partial(self._delete_now, attempt))

    def _delete_now(self, attempt: Attempt) -> None:
        self._jobs.delete(attempt)
        if not attempt.pod_name:
            told, why = attempt.told, "stopped before it had a pod"
            self._end(attempt, Outcome(told.worker, outcome.STOPPED, "start", told.attempt, why))

    def _end_pod(self, attempt: Attempt) -> None:
        if not attempt.is_over:
            self._actions.later(_FORGOTTEN_S, self._insist, attempt, 1)
            self._actions.later(_INSIST_S, self._insist, attempt, 0)
            self._actions.later(_ABANDONED_S, self._abandon, attempt)
            self._delete(attempt)

    def _insist(self, attempt: Attempt, grace_s: float) -> None:
        if not attempt.is_over and attempt.pod_name:
            self.delete_pod(attempt, attempt.pod_name, grace_s)

    def _abandon(self, attempt: Attempt) -> None:
        self.lose(attempt, "it was to end, and the cluster does not say that it has")

    def _urge(self, attempt: Attempt, call: Callable[[], object]) -> None:
        """Calls the cluster; again later, as long as the attempt is not over, if it is out of reach."""
        try:
            call()
        except (Refused, Unreachable) as error:
            if is_passing(error):
                self._actions.later(_AGAIN_S, self._urge_again, attempt, call)
            elif not isinstance(error, Refused) or error.status != 404:
                self._report(Noted(attempt.told.worker, f"the cluster refuses: {error}"))

    def _urge_again(self, attempt: Attempt, call: Callable[[], object]) -> None:
        if not attempt.is_over:
            self._urge(attempt, call)
