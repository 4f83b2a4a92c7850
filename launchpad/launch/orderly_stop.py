"""Ask → wait → insist: how workers are stopped, at the end of the program or to be started again.

Group after group is asked, in reverse order of start, the next one when the former has ended or after a
moment (it may be waiting for a server of an earlier group). Who has not ended when its grace period is over
is killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from launchpad.launch.commands import Ask, Command, Kill
from launchpad.launch.watched import Watched

_ORDERLY_S = 0.2
"""How long a group is waited for before the one started before it is asked too."""


class OrderlyStop:
    """Stops some workers. Pure: `tick` says what is due.

    Args:
      members: Who is to end; asked anew each time, since they end one by one.
      groups: Their groups, the last to start first.
      now: When it begins, monotonic seconds.
      grace_s: How long a worker may take that its policy does not say it of; 0 kills at once, a negative
        number never kills.
      restarts: Whether they are started again.
    """

    def __init__(
        self,
        members: Callable[[], Iterable[Watched]],
        groups: Sequence[str],
        now: float,
        grace_s: float,
        *,
        restarts: bool = False,
    ) -> None:
        self._members, self._groups = members, list(groups)
        self._began, self._grace_s = now, grace_s
        self._restarts = restarts
        self._at_once = False
        self._group_asked_at: float | None = None

    def hurry(self) -> None:
        """No more waiting: whoever still lives is killed at the next tick."""
        self._at_once = True

    def tick(self, now: float) -> list[Command]:
        """What is due."""
        return self._ask_next_groups(now) + self._insist(now)

    def wake_at(self) -> float | None:
        """When `tick` has something to do, if nobody ends before."""
        times = [t for w in self._alive() if (t := self._dies_at(w)) is not None and not w.killed]
        if self._groups and self._group_asked_at is not None:
            times.append(self._group_asked_at + _ORDERLY_S)
        return min(times, default=None)

    def _ask_next_groups(self, now: float) -> list[Command]:
        commands: list[Command] = []
        while self._groups and self._may_ask_next(now):
            group = self._groups.pop(0)
            commands += [self._ask(w) for w in self._alive() if w.plan.group == group]
            self._group_asked_at = now
        return commands

    def _may_ask_next(self, now: float) -> bool:
        if self._group_asked_at is None or now >= self._group_asked_at + _ORDERLY_S:
            return True
        return all(not worker.asked for worker in self._alive())

    def _ask(self, worker: Watched) -> Command:
        worker.move("ask")
        worker.asked = True
        return Ask(worker.name, self._restarts)

    def _insist(self, now: float) -> list[Command]:
        late = [w for w in self._alive() if not w.killed and self._is_due(w, now)]
        for worker in late:
            worker.killed = True
        return [Kill(worker.name) for worker in late]

    def _is_due(self, worker: Watched, now: float) -> bool:
        dies_at = self._dies_at(worker)
        return dies_at is not None and now >= dies_at

    def _dies_at(self, worker: Watched) -> float | None:
        if self._at_once:
            return self._began
        own = worker.plan.restart.stop_grace_s
        grace_s = self._grace_s if own is None else own
        return self._began + grace_s if grace_s >= 0 else None

    def _alive(self) -> list[Watched]:
        return [worker for worker in self._members() if worker.is_alive]
