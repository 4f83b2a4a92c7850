"""Lines that tell a user the states of the workers, which are read twice a second.

    few workers     4 of 5 workers are ready after 3 s; still starting: learner-0
    many workers    120 of 500 workers are ready after 4 s; still starting: actor-120, actor-121 and 378 more

    a long backoff  restarting: actor-3 again in 12 s (5th within a minute)

For a short program that just works, nothing is printed. Pure: the workers and the time go in, lines come out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from launchpad.courier.light_dataclass import dataclass
from launchpad.launch.supervision.worker_state import State, WorkerState

_SLOW_START_S = 3.0
_SLOW_RESTART_S = 3.0
_SLOW_STOP_S = 2.0
_OLD_ENOUGH_S = 10.0
"""The age of a program, in seconds, from which ended workers are named. A younger one may soon be over."""

_NAMED = 3
_RARER = 1.5
"""The factor by which each pause is longer than the one before it, while nothing changes."""


@dataclass
class Progress:
    """A function that returns what is new about the workers, as lines of text."""

    workers: Callable[[], Sequence[WorkerState]]
    _began: float | None = None
    _ready: dict[str, int] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)
    _starting: _Throttle = field(default_factory=lambda: _Throttle(_SLOW_START_S))
    _restarting: _Throttle = field(default_factory=lambda: _Throttle(_SLOW_RESTART_S))
    _stopping: _Throttle = field(default_factory=lambda: _Throttle(_SLOW_STOP_S))

    def __call__(self, now: float) -> list[str]:
        """Return the lines to print at this time, in monotonic seconds."""
        workers = self.workers()
        self._began = now if self._began is None else self._began
        stopping = [w for w in workers if w.state is State.STOPPING]
        if stopping:
            is_due = self._stopping.is_due(now, len(stopping))
            return [f"still stopping: {named(stopping)}"] if is_due else []
        lines = []
        age_s = now - self._began
        count = len(workers)
        total = f"{count} worker{'s' * (count != 1)}"

        ready = {w.name: w.attempt for w in workers if w.state is State.RUNNING}
        back = [w for w in workers if ready.get(w.name, 0) > self._ready.get(w.name, 1)]
        self._ready |= ready
        if back:
            lines.append(f"ready again: {named(back, lambda w: f'{w.name} (attempt {w.attempt})')}")

        late = [w for w in workers if w.state in (State.PENDING, State.STARTING) and w.attempt <= 1]
        if late and self._starting.is_due(now, len(late)):
            lines.append(
                f"{count - len(late)} of {total} {'is' if count - len(late) == 1 else 'are'} ready"
                f" after {age_s:.0f} s; still starting: {named(late)}"
            )
        if not late and self._starting.has_printed:
            self._starting = _Throttle(float("inf"))
            lines.append(f"all {count} workers are ready after {age_s:.0f} s")

        waiting = [w for w in workers if w.next_start is not None]
        if not waiting:
            self._restarting = _Throttle(_SLOW_RESTART_S)
        elif self._restarting.is_due(now, len(waiting)):
            lines.append(f"restarting: {named(waiting, lambda w: _with_next_start(w, now))}")

        over = [w for w in workers if w.state is State.ENDED and w.name not in self._ended]
        self._ended |= {w.name for w in over}
        n_left = sum(w.state is not State.ENDED for w in workers)
        if over and n_left and age_s > _OLD_ENOUGH_S:
            is_are = "is" if n_left == 1 else "are"
            left = f"{n_left} of {total} {is_are} left"
            done = [w for w in over if not w.has_failed]
            failed = [w for w in over if w.has_failed]
            lines += [f"done: {named(done)}; {left}"] if done else []
            lines += [f"ended: {named(failed)}; {left}"] if failed else []
        return lines


@dataclass
class _Throttle:
    """A limit on lines about something slow: ever longer pauses, and a short one after a change."""

    pause_s: float
    has_printed: bool = False
    at: float | None = None
    count: int = 0

    def is_due(self, now: float, count: int) -> bool:
        if self.at is None:
            self.at = now + self.pause_s
        has_changed = self.has_printed and count != self.count
        if now < self.at and not (has_changed and now >= self.at - self.pause_s + 1):
            return False
        self.has_printed = True
        self.count = count
        self.pause_s *= _RARER
        self.at = now + self.pause_s
        return True


def _with_next_start(worker: WorkerState, now: float) -> str:
    next_start = worker.next_start  # the start may begin just now
    return worker.name if next_start is None else f"{worker.name} {next_start.shown(now)}"


def named(
    workers: Sequence[WorkerState], text_of: Callable[[WorkerState], str] = lambda w: w.name
) -> str:
    """Return the names of the first workers, and how many more there are."""
    first = [text_of(worker) for worker in workers[:_NAMED]]
    more = len(workers) - len(first)
    return f"{', '.join(first)} and {more} more" if more else ", ".join(first)
