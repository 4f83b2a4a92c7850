"""Supervised: a run whose supervisor is in the cluster: what `Detached` asks, and who answers.

stop, stacks ── an annotation ──▶ the supervisor's pod
logs, how it has ended ◀── its log ──┘
status ◀── the pods of the run
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from launchpad import outcome
from launchpad.errors import LaunchError, ProgramFailed
from launchpad.launch.backends.kubernetes.attempts import endings, removal
from launchpad.launch.backends.kubernetes.cluster.cluster import (
    Cluster,
    Manifest,
    Refused,
    Unreachable,
)
from launchpad.launch.backends.kubernetes.cluster.patience import Patience
from launchpad.launch.backends.kubernetes.left import supervisor
from launchpad.launch.backends.kubernetes.left.left import Left, longest_grace_s, printed
from launchpad.launch.backends.kubernetes.objects import labels
from launchpad.launch.backends.kubernetes.post import letters
from launchpad.launch.backends.kubernetes.post.letters import Letter, Over, Stacks, Wishes
from launchpad.launch.status import WorkerStatus

_LOOK_S = 0.5
_STACKS_S = 15.0
_INSIST_S = 30.0
"""How long a supervisor may take to stop its program by force."""

_SEPARATOR = " | "
_DELETED = "its supervisor was deleted, and nobody else knows how it has ended"


class Owned(Left):
    """A run that belongs to a supervisor, whether that is there or was lost."""

    def __init__(self, cluster: Cluster, name: str, workers: Mapping[str, str]) -> None:
        super().__init__(cluster, name, workers)
        self.supervisor = supervisor.name(name)

    def stop(self, at_once: bool = False) -> None:
        """Deletes what belongs to the supervisor, and the run."""
        self._cluster.delete("Job", self.supervisor, policy="Foreground")
        self._cluster.delete("Secret", self.supervisor, policy="Foreground")
        super().stop(at_once)

    def _is_gone(self) -> bool:
        if not super()._is_gone():
            return False
        late = self._late(self.supervisor)
        return not self._is_deleted or removal.is_gone(self._cluster, self.supervisor, late)

    def _pods(self) -> list[Manifest]:
        return [*super()._pods(), *self._those_of(self.supervisor)]


class Supervised(Owned):
    """One whose supervisor has launched it."""

    def __init__(self, cluster: Cluster, name: str, workers: Mapping[str, str]) -> None:
        super().__init__(cluster, name, workers)
        self._patience = Patience()
        self._wished = Wishes()
        self._is_to_go = self._is_hurried = self._was_asked = False
        self._gives_up_at = float("inf")
        self._over: Over | None = None
        self._failure: ProgramFailed | LaunchError | None = None

    def pod(self) -> Manifest:
        """The supervisor's; empty if there is none. One that replaces it later launches nothing."""
        return next(iter(self._those_of(self.supervisor)), {})

    def letters(self, pod: Manifest) -> list[Letter]:
        """What it has told so far."""
        found = map(letters.report_in, printed(self._cluster, pod))
        return [letter for letter in found if letter is not None]

    def lives(self) -> bool:
        """Whether the supervisor does."""
        return _acts(self.pod())

    def delete(self) -> str:
        """Deletes what was made, whatever it does; what could not be, in words."""
        kept = []
        for kind in ("Job", "Secret"):
            try:
                self._cluster.delete(kind, self.supervisor, policy="Foreground")
            except (Refused, Unreachable) as error:
                kept.append(f"{kind.lower()}/{self.supervisor} ({error})")
        return f"not deleted: {', '.join(kept)}" if kept else ""

    # What is asked.

    def status(self) -> list[WorkerStatus]:
        """A row for each worker: from its newest pod, or from how the program has ended."""
        over = self._over or (None if self._is_deleted else self._read_over(self.pod()))
        if over is not None and over.program:
            return [_ended(over, *each) for each in self._workers.items()]
        if self._is_deleted:
            states = {outcome.STOPPED: list(self._workers)}
            return [_ended(Over("", states=states), *each) for each in self._workers.items()]
        return super().status()

    def stop(self, at_once: bool = False) -> None:
        """Tells the supervisor, and deletes that when it has ended; at once, if it was lost."""
        self._is_to_go = True
        self._is_hurried |= at_once
        pod = self.pod()
        if not _acts(pod):
            self._has_ended()
            return
        self._wish(replace(self._wished, stop=True, kill=at_once))
        limit_s = _INSIST_S + (0.0 if at_once else longest_grace_s([pod]))
        self._gives_up_at = time.monotonic() + limit_s

    def wait(self, timeout_s: float) -> bool:
        """Whether the program has ended, at the latest after so long; one that was stopped is gone then."""
        deadline = time.monotonic() + timeout_s
        while not self._patience.ask(self._has_ended, otherwise=False):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_S)
        return True

    def failure(self) -> ProgramFailed | LaunchError | None:
        """What has ended the program badly, as was seen by who waited for it."""
        return self._failure

    def logs(self, worker: str, offset: int = 0) -> str:
        """What a worker has printed, in all attempts, as the supervisor has printed it."""
        lines = [line.decode(errors="replace") for line in printed(self._cluster, self.pod())]
        parts = [line.partition(_SEPARATOR) for line in lines]
        return "".join(f"{text}\n" for name, _, text in parts if name.rstrip() == worker)[offset:]

    def stacks(self, workers: list[str]) -> dict[str, str]:
        """What the supervisor gets of them."""
        number = _wishes_of(self.pod()).stacks + 1
        self._wish(replace(self._wished, stacks=number))
        deadline = time.monotonic() + _STACKS_S
        found: dict[str, str] = {}
        while not found.keys() >= set(workers) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
            told = [e for e in self.letters(self.pod()) if isinstance(e, Stacks)]
            found = {each.worker: each.text for each in told if each.number >= number}
        silence = f"(no answer within {_STACKS_S:g} s)\n"
        return {worker: found.get(worker, silence) for worker in workers}

    # How it ends.

    def _has_ended(self) -> bool:
        if self._is_deleted:
            return self._is_gone()
        pod = self.pod()
        wishes = _wishes_of(pod)
        self._was_asked |= wishes.stop
        if _acts(pod) and not self._is_late():
            self._remind(wishes)
            return False
        self._failure = self._failure or self._how_it_failed(pod)
        if not self._is_to_go:
            return True
        super().stop(self._is_hurried or _acts(pod))
        return self._is_gone()

    def _is_late(self) -> bool:
        return self._is_to_go and time.monotonic() >= self._gives_up_at

    def _remind(self, wishes: Wishes) -> None:
        """Somebody else may have wished for something at the same moment."""
        if self._is_to_go and (wishes.stop, wishes.kill) < (self._wished.stop, self._wished.kill):
            self._wish(self._wished)

    def _how_it_failed(self, pod: Manifest) -> ProgramFailed | LaunchError | None:
        if _acts(pod):
            return LaunchError("its supervisor did not end when it was told to")
        self._over = self._over or self._read_over(pod, insists=not self._is_to_go)
        if self._over is not None:
            return self._over.failure()
        if not endings.is_over(pod):
            return None if self._was_asked else LaunchError(_DELETED)
        if pod["status"].get("phase") == "Succeeded":  # its log was lost
            return None
        ended = endings.ending(endings.Told(supervisor.NAME, 1), pod, was_deleted=False)
        return LaunchError(f"its supervisor was lost, which would know how it ended: {ended.cause}")

    def _read_over(self, pod: Manifest, insists: bool = False) -> Over | None:
        """Its last word; no log that cannot be read keeps anybody from stopping it."""
        try:
            return next((e for e in self.letters(pod) if isinstance(e, Over)), None)
        except (Refused, Unreachable):
            if insists:
                raise
            return None

    def _wish(self, wishes: Wishes) -> None:
        """Adds to what was wished by others."""
        self._wished = wishes
        pod = self.pod()
        if pod:
            both = _wishes_of(pod).with_those_of(wishes)
            self._cluster.annotate(pod["metadata"]["name"], {labels.ORDERS: both.text()})


def _acts(pod: Manifest) -> bool:
    """Whether it may do something: one that has not begun yet replaces another, and will launch nothing."""
    return endings.has_started(pod) and not endings.is_over(pod)


def _wishes_of(pod: Manifest) -> Wishes:
    if not pod:
        return Wishes()
    return letters.wishes_in(pod["metadata"]["annotations"].get(labels.ORDERS, ""))


def _ended(over: Over, worker: str, group: str) -> WorkerStatus:
    for failure in over.failures:
        if failure.worker == worker:
            return WorkerStatus(worker, group, failure.kind, failure.attempt, failure.cause, "")
    return WorkerStatus(worker, group, over.state_of(worker), 0, "", "")
