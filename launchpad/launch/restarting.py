"""Restarting: a restart under way, of one worker or of all that are to be started again with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launchpad.launch.orderly_stop import OrderlyStop
from launchpad.launch.watched import Watched


@dataclass(eq=False)
class Restarting:
    """Those that live are stopped; when all have ended and the time has come, all are started.

    Attributes:
      members: In the order in which they are started.
      due_at: Not before, monotonic seconds.
      stop: How those that live are stopped.
    """

    members: Sequence[Watched]
    due_at: float
    stop: OrderlyStop

    def __contains__(self, worker: Watched) -> bool:
        return worker in self.members

    def is_due(self, now: float) -> bool:
        """Whether they can be started."""
        return now >= self.due_at and not self._is_stopping

    def wake_at(self) -> float | None:
        """When there is something to do, if nobody ends before."""
        return self.stop.wake_at() if self._is_stopping else self.due_at

    def give_up(self) -> None:
        """They are not started again after all."""
        for worker in self.members:
            worker.move("give up")

    @property
    def _is_stopping(self) -> bool:
        return any(worker.is_alive for worker in self.members)
