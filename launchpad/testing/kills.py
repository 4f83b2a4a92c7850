"""Kills: workers of a running program die, by a seed.

An attempt that has been in the state `when` for `after_s` seconds has a die thrown for it; with `every_s`
once more in each interval of that length, at a random moment of it. A throw kills with probability `chance`.

    ── starting ──┬── running ──────────────────────────────────▶
                  ├ after_s ┼─── every_s ──┼─── every_s ──┼─ …
                            │    ⚄         │ ⚁            │   ⚅
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from launchpad.launch.running import Running
from launchpad.launch.status import WorkerStatus

_LOOK_S = 0.002
_STATES = ("starting", "running", "stopping")


@dataclass(frozen=True)
class Kill:
    """One that was killed: who, which attempt of it, in which state, and when since the block began.

    `how` is the signal; where workers are threads, `Stopped`, the exception that was raised in its stead.
    """

    worker: str
    attempt: int
    state: str
    at_s: float
    how: str

    def __str__(self) -> str:
        return f"{self.worker} (attempt {self.attempt}, {self.state}) by {self.how} at {self.at_s:.3f} s"


class Kills:
    """Kills workers of a running program for as long as the block lasts, and says whom.

    Example:
      with lp.testing.Kills(running, ["mapper"], seed=7, chance=0.2, every_s=0.1) as kills:
        running.wait(60)
      print(kills)                                  # 3 kills (seed 7): mapper-0 × 1, mapper-3 × 2

    What the die says depends on the seed, the worker's name and the attempt only, and so not on how fast
    the machine is; how many throws there are does depend on it. Give the groups a `RestartPolicy` with many
    restarts, or the first kill is the end of the program.

    A thread cannot be killed. Where workers are threads, `lp.Stopped` is raised in the worker's, and however
    it ends then, that counts as a failure. What it serves is closed: calls that run may still be answered.
    Where workers are pods, it is always SIGKILL, a second or two after it was thrown. On Ray only those on
    this host are struck.

    Args:
      running: The program.
      groups: Labels of the groups that are struck; all of them if None.
      seed: The same seed throws the same dice.
      when: `starting` (from its birth until it is ready), `running` or `stopping`.
      after_s: How long an attempt is left alone.
      every_s: How often a die is thrown for it from then on; once if None.
      chance: How often a throw kills, from 0 to 1.
      at_most: How many kills there are at most.
      with_signal: What kills.

    Attributes:
      done: The kills, in order.

    Raises:
      KeyError: There is no such group.
    """

    def __init__(
        self,
        running: Running,
        groups: Collection[str] | None = None,
        *,
        seed: int = 0,
        when: str = "running",
        after_s: float = 0.0,
        every_s: float | None = None,
        chance: float = 1.0,
        at_most: int | None = None,
        with_signal: signal.Signals = signal.SIGKILL,
    ) -> None:
        _check(running, groups, when, chance)
        self.done: list[Kill] = []
        self._running, self._groups, self._seed = running, groups, seed
        self._when, self._after_s, self._every_s = when, after_s, every_s
        self._chance, self._signal = chance, with_signal
        self._left = math.inf if at_most is None else at_most
        self._fates: dict[tuple[str, int], _Fate] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="launchpad-kills", daemon=True)
        self._began = 0.0

    def __enter__(self) -> Kills:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def __str__(self) -> str:
        times = Counter(kill.worker for kill in self.done)
        whom = ", ".join(f"{worker} × {times[worker]}" for worker in sorted(times)) or "nobody"
        return f"{len(self.done)} kills (seed {self._seed}): {whom}"

    def _watch(self) -> None:
        while self._left > 0 and not self._is_over.wait(_LOOK_S):
            for status in self._running.status():
                if self._left > 0 and self._is_meant(status) and self._fate_of(status).strikes():
                    self._strike(status)

    def _is_meant(self, status: WorkerStatus) -> bool:
        return status.state == self._when and (self._groups is None or status.label in self._groups)

    def _fate_of(self, status: WorkerStatus) -> _Fate:
        attempt = (status.worker, status.attempt)
        if attempt not in self._fates:
            self._fates[attempt] = _Fate(self._throws(*attempt))
        return self._fates[attempt]

    def _throws(self, worker: str, attempt: int) -> Iterator[tuple[float, bool]]:
        """When a die is thrown, from now, and whether it kills."""
        dice = random.Random(f"{self._seed} {worker} {attempt}")
        for i in itertools.count():
            wait_s = 0.0 if self._every_s is None else (i + dice.random()) * self._every_s
            yield self._after_s + wait_s, dice.random() < self._chance
            if self._every_s is None:
                return

    def _strike(self, status: WorkerStatus) -> None:
        how = self._end(status)
        if how:
            self._fates[status.worker, status.attempt].is_sealed = True
            at_s = time.monotonic() - self._began
            self.done.append(Kill(status.worker, status.attempt, status.state, at_s, how))
            self._left -= 1

    def _end(self, status: WorkerStatus) -> str:
        """Kills it; nothing if it is not there yet, or not any more."""
        if status.pid is None:
            why = "killed by lp.testing.Kills, as far as a thread can be"
            return self._running.crash(status.worker, why)
        with contextlib.suppress(ProcessLookupError):
            os.kill(status.pid, self._signal)
            return self._signal.name
        return ""


class _Fate:
    """What awaits one attempt. `is_sealed`: it has struck, and does so once."""

    def __init__(self, throws: Iterator[tuple[float, bool]]) -> None:
        self._throws = throws
        self._began = time.monotonic()
        self._due_s, self._kills = next(throws)
        self.is_sealed = False

    def strikes(self) -> bool:
        """Whether a throw that is due by now kills."""
        while not self.is_sealed and time.monotonic() - self._began >= self._due_s:
            if self._kills:
                return True
            self._due_s, self._kills = next(self._throws, (math.inf, False))
        return False


def _check(running: Running, groups: Collection[str] | None, when: str, chance: float) -> None:
    if isinstance(groups, str):
        raise TypeError(f"groups are several labels, [{groups!r}], not one")
    unknown = set(groups or ()) - set(running.plan.groups)
    if unknown:
        there = list(running.plan.groups)
        raise KeyError(f"there is no group {sorted(unknown)} to kill workers of; there are {there}")
    if when not in _STATES:
        raise ValueError(f"when is one of {', '.join(_STATES)}, not {when!r}")
    if not 0 <= chance <= 1:
        raise ValueError(f"chance is how often, from 0 to 1, not {chance!r}")
