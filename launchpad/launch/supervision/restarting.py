"""The restarts that are under way, and which of them have something to do."""

from __future__ import annotations

from collections.abc import Iterable

from launchpad.launch.supervision.due_times import DueTimes
from launchpad.launch.supervision.shutdown import Shutdown
from launchpad.launch.supervision.worker_state import WorkerState


class Restarting:
    """The restarts of one program. Each is a `Shutdown` of workers that are then started again.

    A restart has something to do when it is new, when one of its workers has ended, or at a certain time.
    """

    def __init__(self) -> None:
        # Worker → the restart that it is a member of. A worker is a member of one restart at most.
        self._of: dict[WorkerState, Shutdown] = {}
        self._changed: dict[Shutdown, None] = {}
        self._due = DueTimes(self._due_at)

    def __contains__(self, worker: WorkerState) -> bool:
        return worker in self._of

    def add(self, restart: Shutdown) -> None:
        """Begin a restart."""
        self._of |= dict.fromkeys(restart.members, restart)
        self._changed[restart] = None
        self._due.update(restart)

    def remove(self, restart: Shutdown) -> None:
        """Forget a restart, because its workers are started now, or as a part of another one."""
        for member in restart.members:
            del self._of[member]
        self._changed.pop(restart, None)

    def clear(self) -> list[Shutdown]:
        """Forget all restarts, and return them."""
        restarts = self.of(self._of)
        self._of.clear()
        self._changed.clear()
        return restarts

    def of(self, workers: Iterable[WorkerState]) -> list[Shutdown]:
        """Return the restarts that these workers are members of, each once."""
        return list(dict.fromkeys(self._of[worker] for worker in workers if worker in self._of))

    def asked(self, worker: WorkerState) -> None:
        """Take note that a worker was asked to stop for another reason."""
        if worker in self._of:
            self._of[worker].asked(worker)

    def ended(self, worker: WorkerState) -> None:
        """Take note that a worker has ended."""
        restart = self._of.get(worker)
        if restart is not None:
            restart.ended(worker)
            self._changed[restart] = None

    def take(self, now: float) -> list[Shutdown]:
        """Return the restarts that have something to do by now. `update` is due for those that go on."""
        restarts = list(dict.fromkeys([*self._changed, *self._due.take(now)]))
        self._changed.clear()
        return restarts

    def update(self, restart: Shutdown) -> None:
        """Take note that a restart has done what it had to do."""
        self._due.update(restart)

    def next_at(self) -> float | None:
        """Return when a restart has something to do, if no worker ends before that; None if never."""
        return self._due.next_at()

    def _due_at(self, restart: Shutdown) -> float | None:
        if self._of.get(next(iter(restart.members))) is not restart:
            return None
        return restart.wake_at() if restart.is_running else restart.restart_at
