"""Supervised: a run whose supervisor is in the cluster: what `Detached` asks, and who answers.

stop, stacks ── an annotation ──▶ the supervisor's pod
logs, how it has ended ◀── its log ──┘
status ◀── the pods of the run
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from launchpad.errors import LaunchError, ProgramFailed
from launchpad.launch.backends.kubernetes import endings, letters, manifest, removal, supervisor
from launchpad.launch.backends.kubernetes.api import (
    Cluster,
    Manifest,
    Refused,
    Unreachable,
    is_passing,
)
from launchpad.launch.backends.kubernetes.left import Left, printed
from launchpad.launch.backends.kubernetes.letters import Letter, Over, Stacks, Wishes
from launchpad.launch.status import WorkerStatus

_LOOK_S = 0.5
_STACKS_S = 15.0
_INSIST_S = 30.0
"""How long a supervisor may take to stop its program by force."""

_SILENCE_S = 60.0
"""How long a cluster may be out of reach for somebody who waits."""

_SEPARATOR = " | "


class Orphaned(Left):
    """A run whose supervisor was lost: nobody starts a worker again, or tells how it has ended."""

    def __init__(self, cluster: Cluster, name: str, workers: Mapping[str, str]) -> None:
        super().__init__(cluster, name, workers)
        self._supervisor = supervisor.name(name)

    def stop(self, at_once: bool = False) -> None:
        """Deletes what belonged to the supervisor, and the run."""
        self._cluster.delete("Job", self._supervisor, policy="Foreground")
        self._cluster.delete("Secret", self._supervisor, policy="Foreground")
        super().stop(at_once)

    def _is_gone(self) -> bool:
        if not super()._is_gone():
            return False
        return not self._is_deleted or removal.is_gone(
            self._cluster, self._supervisor, self._late(self._supervisor)
        )

    def _pods(self) -> list[Manifest]:
        return [*super()._pods(), *self._those_of(self._supervisor)]


class Supervised(Orphaned):
    """One that has a supervisor."""

    def __init__(self, cluster: Cluster, name: str, workers: Mapping[str, str]) -> None:
        super().__init__(cluster, name, workers)
        self._wished = Wishes()
        self._is_to_go = self._was_asked = False
        self._failure: ProgramFailed | LaunchError | None = None
        self._silent_since = 0.0
        self._gives_up_at = float("inf")

    def pod(self) -> Manifest:
        """The supervisor's; empty if there is none. Another one that replaces it launches nothing."""
        return next(iter(self._those_of(self._supervisor)), {})

    def letters(self) -> list[Letter]:
        """What it has told so far."""
        found = map(letters.report_in, printed(self._cluster, self.pod()))
        return [letter for letter in found if letter is not None]

    @property
    def job(self) -> str:
        """The supervisor's."""
        return self._supervisor

    def delete(self) -> str:
        """Deletes what was made, whatever it does; what could not be, in words."""
        kept = []
        for kind in ("Job", "Secret"):
            try:
                self._cluster.delete(kind, self._supervisor, policy="Foreground")
            except (Refused, Unreachable) as error:
                kept.append(f"{kind.lower()}/{self._supervisor} ({error})")
        return f"; what is left: {', '.join(kept)}" if kept else ""

    def lives(self) -> bool:
        """Whether the supervisor does."""
        pod = self.pod()
        return bool(pod) and not endings.is_over(pod)

    def status(self) -> list[WorkerStatus]:
        """A row for each worker: from its newest pod, or from how the program has ended."""
        over = self._over()
        if over is not None and over.program:
            return [_ended(over, *each) for each in self._workers.items()]
        return super().status()

    def stop(self, at_once: bool = False) -> None:
        """Tells the supervisor, and deletes that when it has ended; at once, if it was lost."""
        self._is_to_go = True
        pod = self.pod()
        if not pod or endings.is_over(pod):
            self._clear_away(at_once)
            return
        self._wish(replace(self._wished, stop=True, kill=at_once))
        limit_s = _INSIST_S + (0.0 if at_once else pod["spec"]["terminationGracePeriodSeconds"])
        self._gives_up_at = time.monotonic() + limit_s

    def wait(self, timeout_s: float) -> bool:
        """Whether the program has ended, at the latest after so long; one that was stopped is gone then."""
        deadline = time.monotonic() + timeout_s
        while not self._has_ended_patiently():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_S)
        return True

    def failure(self) -> ProgramFailed | LaunchError | None:
        """What has ended the program badly."""
        return self._failure or (None if self._is_deleted else self._how_it_failed())

    def logs(self, worker: str, offset: int = 0) -> str:
        """What a worker has printed, in all attempts, as the supervisor has printed it."""
        lines = [line.decode(errors="replace") for line in printed(self._cluster, self.pod())]
        parts = [line.partition(_SEPARATOR) for line in lines]
        return "".join(f"{text}\n" for name, _, text in parts if name.rstrip() == worker)[offset:]

    def stacks(self, workers: list[str]) -> dict[str, str]:
        """What the supervisor gets of them."""
        number = self._wishes_of(self.pod()).stacks + 1
        self._wish(replace(self._wished, stacks=number))
        deadline = time.monotonic() + _STACKS_S
        found: dict[str, str] = {}
        while not found.keys() >= set(workers) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
            told = [e for e in self.letters() if isinstance(e, Stacks) and e.number >= number]
            found = {each.worker: each.text for each in told}
        silence = f"(no answer within {_STACKS_S:g} s)\n"
        return {worker: found.get(worker, silence) for worker in workers}

    def _has_ended_patiently(self) -> bool:
        """The same as `_has_ended`, of a cluster that may be out of reach for a while."""
        try:
            ended = self._has_ended()
        except (Refused, Unreachable) as error:
            self._silent_since = self._silent_since or time.monotonic()
            if not is_passing(error) or time.monotonic() - self._silent_since > _SILENCE_S:
                raise
            return False
        self._silent_since = 0.0
        return ended

    def _has_ended(self) -> bool:
        if self._is_deleted:
            return self._is_gone()
        pod = self.pod()
        wishes = self._wishes_of(pod)
        self._was_asked |= wishes.stop
        if pod and not endings.is_over(pod):
            if not self._is_to_go or time.monotonic() < self._gives_up_at:
                self._remind(wishes)
                return False
        elif not self._is_to_go:
            return True
        self._failure = self._how_it_failed() if pod else None
        self._clear_away(at_once=bool(pod) and not endings.is_over(pod))
        return self._is_gone()

    def _remind(self, wishes: Wishes) -> None:
        """Somebody else may have wished for something at the same moment."""
        if self._is_to_go and (wishes.stop, wishes.kill) < (self._wished.stop, self._wished.kill):
            self._wish(self._wished)

    def _clear_away(self, at_once: bool) -> None:
        super().stop(at_once)

    def _how_it_failed(self) -> ProgramFailed | LaunchError | None:
        over, pod = self._over(), self.pod()
        if over is not None:
            return over.failure()
        if not pod and self._was_asked:
            return None
        if not pod:
            return LaunchError("its supervisor was deleted, and nobody else knows how it has ended")
        if not endings.is_over(pod):
            return LaunchError("its supervisor did not end when it was told to")
        ended = endings.ending(endings.Told(supervisor.NAME, 1), pod, was_deleted=False)
        return LaunchError(f"its supervisor was lost, which would know how it ended: {ended.cause}")

    def _over(self) -> Over | None:
        return next((each for each in self.letters() if isinstance(each, Over)), None)

    def _wishes_of(self, pod: Manifest) -> Wishes:
        if not pod:
            return Wishes()
        return letters.wishes_in(pod["metadata"]["annotations"].get(manifest.ORDERS, ""))

    def _wish(self, wishes: Wishes) -> None:
        """Adds to what was wished by others."""
        self._wished = wishes
        pod = self.pod()
        if pod:
            both = self._wishes_of(pod).with_those_of(wishes)
            self._cluster.annotate(pod["metadata"]["name"], {manifest.ORDERS: both.text()})


def _ended(over: Over, worker: str, group: str) -> WorkerStatus:
    for failure in over.failures:
        if failure.worker == worker:
            return WorkerStatus(worker, group, failure.kind, failure.attempt, failure.cause, "")
    return WorkerStatus(worker, group, over.state_of(worker), 0, "", "")
