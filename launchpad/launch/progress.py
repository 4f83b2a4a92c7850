"""Progress: what a user is told of the workers' states, from looks at them twice a second.

    few workers     4 of 5 workers are ready after 3 s; still starting: learner-0
    many workers    120 of 500 workers are ready after 4 s; still starting: actor-120, actor-121 and 378 more

A short program that just works says nothing. Pure: the workers and the time go in, lines come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from launchpad.launch.watched import State, Watched

_SLOW_START_S = 3.0
_SLOW_STOP_S = 2.0
_OLD_ENOUGH_S = 10.0
"""Who ends in a program younger than this is not mentioned: it will be over soon."""

_NAMED = 3
_RARER = 1.5
"""How much longer each silence is than the one before it, while nothing changes."""


class Progress:
    """Looks at the workers and says what is new.

    Example:
      progress = Progress(supervising.workers)
      for line in progress(time.monotonic()): …

    Args:
      workers: Gives them as they are now.
    """

    def __init__(self, workers: Callable[[], Sequence[Watched]]) -> None:
        self._workers = workers
        self._began: float | None = None
        self._ready: dict[str, int] = {}
        self._ended: set[str] = set()
        self._starting = _Pace(_SLOW_START_S)
        self._stopping = _Pace(_SLOW_STOP_S)

    def __call__(self, now: float) -> list[str]:
        """What there is to say at this time, in monotonic seconds."""
        workers = self._workers()
        self._age_s(now)
        if any(w.state is State.STOPPING for w in workers):
            return list(self._of_stop(workers, now))
        return [
            *self._of_restarts(workers),
            *self._of_start(workers, now),
            *self._of_ends(workers, now),
        ]

    def _age_s(self, now: float) -> float:
        if self._began is None:
            self._began = now
        return now - self._began

    def _of_start(self, workers: Sequence[Watched], now: float) -> Iterator[str]:
        late = [w for w in workers if w.state in (State.PENDING, State.STARTING) and w.attempt <= 1]
        age_s = self._age_s(now)
        if late and self._starting.is_due(now, len(late)):
            yield (
                f"{_of(len(workers) - len(late), len(workers))} ready after {age_s:.0f} s;"
                f" still starting: {_named(late)}"
            )
        if not late and self._starting.has_spoken:
            self._starting = _Pace(float("inf"))
            yield f"all {len(workers)} workers are ready after {age_s:.0f} s"

    def _of_restarts(self, workers: Sequence[Watched]) -> Iterator[str]:
        ready = {w.name: w.attempt for w in workers if w.state is State.RUNNING}
        back = [w for w in workers if ready.get(w.name, 0) > self._ready.get(w.name, 1)]
        self._ready |= ready
        if back:
            yield f"ready again: {_named(back, with_attempt=True)}"

    def _of_ends(self, workers: Sequence[Watched], now: float) -> Iterator[str]:
        over = [w for w in workers if w.state is State.ENDED and w.name not in self._ended]
        self._ended |= {w.name for w in over}
        left = sum(w.state is not State.ENDED for w in workers)
        if over and left and self._age_s(now) > _OLD_ENOUGH_S:
            yield f"ended: {_named(over)}; {_of(left, len(workers))} left"

    def _of_stop(self, workers: Sequence[Watched], now: float) -> Iterator[str]:
        late = [w for w in workers if w.state is State.STOPPING]
        if self._stopping.is_due(now, len(late)):
            yield f"still stopping: {_named(late)}"


class _Pace:
    """When to speak of something that takes long: later and later, and at once when it has changed."""

    def __init__(self, first_s: float) -> None:
        self.has_spoken = False
        self._pause_s = first_s
        self._at: float | None = None
        self._count = 0

    def is_due(self, now: float, count: int) -> bool:
        if self._at is None:
            self._at = now + self._pause_s
        has_changed = (
            self.has_spoken and count != self._count and now >= self._at - self._pause_s + 1
        )
        if now < self._at and not has_changed:
            return False
        self.has_spoken, self._count = True, count
        self._pause_s *= _RARER
        self._at = now + self._pause_s
        return True


def _of(count: int, total: int) -> str:
    return f"{count} of {total} worker{'s' * (total != 1)} {'is' if count == 1 else 'are'}"


def _named(workers: Sequence[Watched], with_attempt: bool = False) -> str:
    """The names of some, and how many more there are."""
    first = [
        f"{w.name} (attempt {w.attempt})" if with_attempt else w.name for w in workers[:_NAMED]
    ]
    more = len(workers) - len(first)
    return f"{', '.join(first)} and {more} more" if more else ", ".join(first)
