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
from launchpad.launch.backends.kubernetes.api import Cluster, Manifest
from launchpad.launch.backends.kubernetes.left import Left, printed
from launchpad.launch.backends.kubernetes.letters import Letter, Over, Stacks, Wishes
from launchpad.launch.status import WorkerStatus

_LOOK_S = 0.5
_STACKS_S = 15.0
_SEPARATOR = " | "


class Supervised(Left):
    """One run."""

    def __init__(self, cluster: Cluster, name: str, workers: Mapping[str, str]) -> None:
        super().__init__(cluster, name, workers)
        self._supervisor = supervisor.name(name)
        self._wishes = Wishes()
        self._is_to_go = False

    def pod(self) -> Manifest:
        """The supervisor's; empty if there is none."""
        pods, _ = self._cluster.list("Pod", f"{manifest.RUN}={self._supervisor}")
        return max(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), default={})

    def letters(self) -> list[Letter]:
        """What it has told so far."""
        found = map(letters.report_in, printed(self._cluster, self.pod()))
        return [letter for letter in found if letter is not None]

    def status(self) -> list[WorkerStatus]:
        """A row for each worker: from its newest pod, or from how the program has ended."""
        for letter in self.letters():
            if isinstance(letter, Over):
                return [_ended(letter, *each) for each in self._workers.items()]
        return super().status()

    def stop(self, at_once: bool = False) -> None:
        """Tells the supervisor, and deletes that when it has ended; at once, if it was lost."""
        self._is_to_go = True
        if self._lives():
            self._wish(replace(self._wishes, stop=True, kill=at_once))
        else:
            self.delete()

    def wait(self, timeout_s: float) -> bool:
        """Whether the program has ended, at the latest after so long; one that was stopped is gone then."""
        deadline = time.monotonic() + timeout_s
        while not self._has_ended():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_S)
        return True

    def failure(self) -> ProgramFailed | LaunchError | None:
        """What has ended the program badly."""
        pod = self.pod()
        for letter in self.letters():
            if isinstance(letter, Over):
                return letter.failure()
        if not pod:
            return (
                None
                if self._is_to_go
                else LaunchError("its supervisor is gone, and was not asked to go")
            )
        ended = endings.ending(endings.Told(supervisor.NAME, 1), pod, was_deleted=False)
        return LaunchError(f"its supervisor was lost, which would know how it ended: {ended.cause}")

    def logs(self, worker: str, offset: int = 0) -> str:
        """What a worker has printed, in all attempts, as the supervisor has printed it."""
        lines = [line.decode(errors="replace") for line in printed(self._cluster, self.pod())]
        parts = [line.partition(_SEPARATOR) for line in lines]
        return "".join(f"{text}\n" for name, _, text in parts if name.rstrip() == worker)[offset:]

    def stacks(self, workers: list[str]) -> dict[str, str]:
        """What the supervisor gets of them."""
        number = 1 + max((e.number for e in self.letters() if isinstance(e, Stacks)), default=0)
        self._wish(replace(self._wishes, stacks=number))
        deadline = time.monotonic() + _STACKS_S
        found: dict[str, str] = {}
        while not found.keys() >= set(workers) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
            told = [e for e in self.letters() if isinstance(e, Stacks) and e.number == number]
            found = {each.worker: each.text for each in told}
        return {
            worker: found.get(worker, "(its supervisor does not answer)\n") for worker in workers
        }

    def delete(self) -> None:
        """All of it, whatever it does."""
        self._cluster.delete("Job", self._supervisor, policy="Foreground")
        self._cluster.delete("Secret", self._supervisor, policy="Foreground")

    def _lives(self) -> bool:
        pod = self.pod()
        return bool(pod) and not endings.is_over(pod)

    def _has_ended(self) -> bool:
        if self._lives():
            return False
        if not self._is_to_go:
            return True
        self.delete()
        return removal.is_gone(self._cluster, self._name) and removal.is_gone(
            self._cluster, self._supervisor
        )

    def _wish(self, wishes: Wishes) -> None:
        self._wishes = wishes
        if name := self.pod().get("metadata", {}).get("name"):
            self._cluster.annotate(name, {manifest.ORDERS: wishes.text()})


def _ended(over: Over, worker: str, group: str) -> WorkerStatus:
    state = over.states.get(worker, "ended")
    for failure in over.failures:
        if failure.worker == worker:
            return WorkerStatus(worker, group, failure.kind, failure.attempt, failure.cause, "")
    return WorkerStatus(worker, group, state, 0, "", "")
