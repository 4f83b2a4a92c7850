"""The workers of one launch on a cluster.

    supervisor ── start, ask, kill … ──▶ actions, in one thread ──▶ the cluster's API
    supervisor ◀── reports ─────────────────┘ ◀── watch: what becomes of pods
                                              ◀── followers: what pods write

An attempt is a Job with one pod, which the cluster never starts again: whether there is another attempt is
the supervisor's decision, here as everywhere.
"""

from __future__ import annotations

import itertools
import sys
import tarfile
import threading
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from launchpad import outcome
from launchpad.launch.backend import Done, Ended, Noted, Ready, Report, Waiting, Workers
from launchpad.launch.backends.actions import Actions
from launchpad.launch.backends.kubernetes import making
from launchpad.launch.backends.kubernetes.attempts import endings, removal
from launchpad.launch.backends.kubernetes.attempts.attempt import Attempt
from launchpad.launch.backends.kubernetes.attempts.endings import Told
from launchpad.launch.backends.kubernetes.attempts.jobs import Jobs
from launchpad.launch.backends.kubernetes.attempts.reaper import Reaper
from launchpad.launch.backends.kubernetes.cluster.cluster import Cluster, Refused, Unreachable
from launchpad.launch.backends.kubernetes.cluster.follower import Follower
from launchpad.launch.backends.kubernetes.cluster.watching import Watching
from launchpad.launch.backends.kubernetes.objects import names
from launchpad.launch.backends.kubernetes.objects.grace import grace_s
from launchpad.launch.backends.kubernetes.objects.labels import ATTEMPT, ORDERS, RUN, WORKER
from launchpad.launch.backends.kubernetes.post import baggage, letters
from launchpad.launch.backends.kubernetes.post.letters import Baggage, Stacks, Wishes
from launchpad.launch.backends.kubernetes.sender import Sender
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.backends.mirror import Mirror
from launchpad.launch.backends.origin import Keys
from launchpad.launch.backends.view import View
from launchpad.launch.gpus import arithmetic
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.launch.run_directory import RunDirectory
from launchpad.outcome import Outcome
from launchpad.resources import counted

_LOG_S = 5.0
"""How long the rest of a log may take, when its pod is over."""

_WORD_S = 10.0
"""How long the cluster may take to say how a pod has ended, when that has said its last word."""

_NO_POD_S = 5.0
"""After so long without a pod the user is told why."""

_STACKS_S = 10.0
_REASON = 300
"""Characters of why somebody is gone: an annotation holds so much, and there may be many."""


class KubernetesWorkers(Workers):
    """One launch. Makes what all its pods share; nothing of the user's runs yet.

    Args:
      sender: On whose behalf; of this script by default.

    Raises:
      LaunchError: the cluster cannot be reached, or does not allow it; it lists the rights that are missing.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        run: RunDirectory,
        report: Callable[[Report], None],
        settings: Settings,
        cluster: Cluster,
        sender: Sender | None = None,
    ) -> None:
        self._plan, self._directory, self._report = plan, run, report
        self._settings, self._cluster = settings, cluster
        self._keys = Keys.of(run.scope, plan.launch_type.removeprefix("test_"))
        self._view = View(self._keys)
        self._attempts: dict[str, Attempt] = {}
        self._followers: list[Follower] = []
        self._by_label = {names.label(worker.name): worker.name for worker in plan.workers}
        self._gone: dict[str, str] = {}
        self._states: dict[str, bytes] = {}
        self._stacks: dict[str, Stacks] = {}
        self._numbers = itertools.count(1)
        self._has_stacks = threading.Condition()
        self._actions = Actions("launchpad-kubernetes", self._on_error)
        self._run = making.make(cluster, plan, run, settings, self._keys, sender)
        self._jobs = Jobs(cluster, self._run)
        self._reaper = Reaper(cluster, self._jobs, self._actions, report, self._end)
        self._watching = Watching(
            cluster,
            self._selector,
            lambda *event: self._actions.do(self._on_pod, *event),
            self._note_all,
        )
        self._actions.begin()

    def start(self, worker: str, attempt: int) -> None:
        """Makes its Job."""
        self._actions.do(self._start, worker, attempt)

    def ask(self, worker: str, *, restarts: bool = False) -> None:
        """By SIGTERM, or by an annotation if it is to save what it knows."""
        self._actions.do(self._on_living, worker, partial(self._reaper.ask, restarts=restarts))

    def kill(self, worker: str) -> None:
        """By its pod, so that its stacks are in its log; with its pod if that does not do it."""
        self._actions.do(self._on_living, worker, self._reaper.kill)

    def hurry(self) -> None:
        """For all kills to come."""
        self._reaper.is_hurried = True

    def tell_gone(self, worker: str, why: str) -> None:
        """Tells all."""
        self._actions.do(self._tell_gone, worker, why)

    def places(self) -> Mapping[str, str]:
        """At the addresses of pods: of use to this process if it is in the cluster's network."""
        return self._view.places

    def stacks(self, worker: str) -> str:
        """What faulthandler writes in its process."""
        attempt = self._attempts.get(worker)
        if attempt is None or not attempt.pod_name:
            return ""
        number = next(self._numbers)
        self._actions.do(self._reaper.wish, attempt, {"stacks": number})
        with self._has_stacks:
            answered = self._has_stacks.wait_for(
                lambda: worker in self._stacks and self._stacks[worker].number >= number, _STACKS_S
            )
            return self._stacks[worker].text if answered else f"({worker} does not answer)\n"

    def crash(self, worker: str, why: str) -> str:
        """By SIGKILL, which its pod sends to its process."""
        attempt = self._living(worker)
        if attempt is None or attempt.follower is None or attempt.told.said is not None:
            return ""
        self._actions.do(self._reaper.wish, attempt, {"crash": True})
        return "SIGKILL"

    def close(self) -> None:
        """Deletes all that belongs to the run, and waits until it is gone."""
        self._actions.end(self._close)
        self._cluster.close()
        self._watching.join()
        for follower in self._followers:
            follower.join()

    # Commands.

    def _start(self, worker: str, number: int) -> None:
        before = self._attempts.get(worker)
        attempt = self._attempts[worker] = Attempt(
            Told(worker, number), wishes=Wishes(gone=dict(self._gone))
        )
        try:
            if before is not None:
                self._jobs.remove(before)
            self._jobs.create(attempt, self._plan.worker(worker), self._states.get(worker, b""))
        except (Refused, Unreachable) as error:
            cause = f"the cluster does not take its pod: {error}"
            self._end(attempt, Outcome(worker, outcome.FAILED, "start", number, cause))
        else:
            self._actions.later(_NO_POD_S, self._note_no_pod, attempt)
            self._actions.later(self._settings.pending_timeout_s, self._give_up, attempt)

    def _on_living(self, worker: str, act: Callable[[Attempt], None]) -> None:
        attempt = self._living(worker)
        if attempt is not None:
            act(attempt)

    def _tell_gone(self, worker: str, why: str) -> None:
        self._gone[worker] = why[:_REASON]
        for attempt in self._attempts.values():
            if not attempt.is_over:
                self._reaper.wish(attempt, {"gone": dict(self._gone)})

    # What the cluster says.

    def _on_pod(self, kind: str, pod: dict[str, Any]) -> None:
        labels = pod["metadata"]["labels"]
        worker = self._by_label.get(labels.get(WORKER, ""), "")
        attempt = self._living(worker)
        if attempt is None or labels.get(ATTEMPT) != str(attempt.told.attempt):
            return
        if attempt.uid and attempt.uid != pod["metadata"]["uid"]:
            self._reaper.delete_pod(attempt, pod["metadata"]["name"])
            return  # the Job has replaced a pod that somebody has deleted
        is_new = not attempt.uid
        attempt.pod = pod
        if is_new and attempt.wishes.text() != pod["metadata"]["annotations"][ORDERS]:
            self._reaper.wish(attempt, {})  # what was wished while it had no pod
        if not attempt.was_deleted and _is_deleted(kind, pod):
            patience_s = grace_s(self._plan.worker(worker), self._run.grace_s)
            self._reaper.on_deleted(attempt, patience_s)
        if endings.has_started(pod) and attempt.follower is None:
            self._follow(attempt)
        if kind == "DELETED" or endings.is_over(pod):
            self._on_over(attempt)
        elif not endings.has_started(pod):
            self._on_pending(attempt)

    def _follow(self, attempt: Attempt) -> None:
        told = attempt.told
        log = self._directory.log(told.worker, told.attempt)
        mirror = Mirror(
            log, self._directory.rotation, lambda text: self._report(Noted(told.worker, text))
        )
        attempt.follower = Follower(
            self._cluster,
            attempt.pod_name,
            mirror,
            lambda report: self._actions.do(self._on_report, attempt, report),
            lambda: self._actions.do(self._on_read, attempt),
        )
        self._followers.append(attempt.follower)

    def _on_report(self, attempt: Attempt, report: Any) -> None:
        if isinstance(report, Ended):
            attempt.told = replace(attempt.told, said=report.outcome)
        elif isinstance(report, Baggage):
            attempt.state.append(report)
        elif isinstance(report, Stacks):
            with self._has_stacks:
                self._stacks[attempt.told.worker] = report
                self._has_stacks.notify_all()
        elif not attempt.is_over:
            self._pass_on(attempt, report)

    def _pass_on(self, attempt: Attempt, report: Any) -> None:
        """A report about this worker: its pod speaks for no other."""
        told = attempt.told
        if isinstance(report, Waiting) and report.on not in self._attempts:
            return
        if isinstance(report, Ready):
            attempt.told = replace(told, is_ready=True)
            self._see(attempt)
        mine = {"attempt": told.attempt} if isinstance(report, (Ready, Done)) else {}
        self._report(replace(report, worker=told.worker, **mine))

    def _on_pending(self, attempt: Attempt) -> None:
        why = endings.why_pending(attempt.pod)
        if why and why != attempt.noted:
            attempt.noted = why
            self._report(Noted(attempt.told.worker, f"its pod is pending: {why}"))
        if endings.is_hopeless(attempt.pod):
            self._give_up(attempt)

    def _note_no_pod(self, attempt: Attempt) -> None:
        if not attempt.is_over and not attempt.pod_name:
            why = self._why_no_pod(attempt)
            self._report(Noted(attempt.told.worker, f"{attempt.told.worker} has no pod yet: {why}"))

    def _why_no_pod(self, attempt: Attempt) -> str:
        try:
            return self._jobs.why_no_pod(attempt) or endings.UNSAID
        except (Refused, Unreachable) as error:
            return str(error)

    def _give_up(self, attempt: Attempt) -> None:
        if attempt.is_over or endings.has_started(attempt.pod):
            return
        asked = self._asked_by(self._plan.worker(attempt.told.worker))
        patience_s = self._settings.pending_timeout_s
        why = "" if attempt.pod_name else self._why_no_pod(attempt)
        ended = endings.not_begun(attempt.told, attempt.pod, asked, patience_s, why)
        self._reaper.delete_job(attempt)
        self._end(attempt, ended)

    def _asked_by(self, worker: WorkerPlan) -> str:
        """What it asks for, and what all do who want GPUs, if it does."""
        asked = [(w.group, w.resources.gpus) for w in self._plan.workers if w.resources.gpus]
        if not worker.resources.gpus or len(asked) == 1:
            return worker.resources.asked()
        total = arithmetic.demand(
            [(group, counted(gpus, "GPU")) for group, gpus in asked],
            f"{sum(gpus for _, gpus in asked):g}",
        )
        return f"{worker.resources.asked()}, and its program for {total}"

    def _on_read(self, attempt: Attempt) -> None:
        attempt.is_read = True
        if endings.is_clear(attempt.told, attempt.was_deleted) or endings.is_over(attempt.pod):
            self._finish(attempt)
        else:
            self._actions.later(_WORD_S, self._finish, attempt)

    def _on_over(self, attempt: Attempt) -> None:
        if attempt.follower is None or attempt.is_read:
            self._finish(attempt)
        elif not attempt.follower.is_over.is_set():
            attempt.follower.is_over.set()
            self._actions.later(_LOG_S, self._finish, attempt)

    def _finish(self, attempt: Attempt) -> None:
        """Its log is read, and all is known of its end."""
        if attempt.is_over:
            return
        self._keep_state(attempt)
        self._end(attempt, endings.ending(attempt.told, attempt.pod, attempt.was_deleted))

    def _keep_state(self, attempt: Attempt) -> None:
        """With the run's logs, as everywhere; and for the next attempt."""
        worker = attempt.told.worker
        if not attempt.state:
            return
        try:
            content = letters.joined(attempt.state)
            baggage.unpack(content, self._directory.state(worker))
            self._states[worker] = content
        except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error) as error:
            text = f"what it has left in its state directory did not arrive whole ({error})"
            self._report(Noted(worker, text))

    def _end(self, attempt: Attempt, ended: Outcome) -> None:
        attempt.is_over = True
        own = self._plan.worker(attempt.told.worker).endpoints
        self._view.follow(dict.fromkeys(own, ""))
        self._report(Ended(ended))

    def _see(self, attempt: Attempt) -> None:
        """Where its servers are for this process."""
        ip = attempt.pod["status"].get("podIP", "")
        own = self._plan.worker(attempt.told.worker).endpoints
        self._view.follow({name: _at(endpoint, ip) for name, endpoint in own.items()})

    def _living(self, worker: str) -> Attempt | None:
        attempt = self._attempts.get(worker)
        return None if attempt is None or attempt.is_over else attempt

    def _on_error(self, error: Exception) -> None:
        """What the cluster refuses or does not hear is tried again by whoever waits; else all is lost."""
        why = f"{type(error).__name__}: {error}"
        self._note_all(why)
        if not isinstance(error, (Refused, Unreachable)):
            for attempt in self._attempts.values():
                self._reaper.lose(attempt, f"its launcher cannot go on: {why}")

    def _note_all(self, text: str) -> None:
        self._report(Noted(self._plan.workers[0].name, text))

    # The end.

    def _close(self) -> None:
        self._view.close()
        try:
            removal.remove(self._cluster, self._run.name, self._ended_pods())
        except (Refused, Unreachable) as error:
            print(  # nobody takes reports any more
                f"launchpad: what belongs to {self._run.name} could not be deleted: {error}. Delete it with"
                f" `kubectl delete secret {self._run.name} -n {self._cluster.namespace}`",
                file=sys.stderr,
            )
        self._watching.end()
        for follower in self._followers:
            follower.is_over.set()

    def _ended_pods(self) -> set[str]:
        """Those whose worker has said so."""
        return {each.pod_name for each in self._attempts.values() if each.told.said is not None}

    @property
    def _selector(self) -> str:
        return f"{RUN}={self._run.name}"


def _is_deleted(kind: str, pod: Mapping[str, Any]) -> bool:
    return kind == "DELETED" or "deletionTimestamp" in pod["metadata"]


def _at(endpoint: str, ip: str) -> str:
    scheme = "tcp:" if endpoint.startswith("tcp:") else ""
    host = f"[{ip}]" if ":" in ip else ip
    return f"{scheme}{host}:{endpoint.rpartition(':')[2]}"
