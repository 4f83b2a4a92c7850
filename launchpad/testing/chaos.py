"""Chaos: make workers of a program die (`KillWorkers`, `crash`), stop (`freeze`) or slow down (`throttle`).

`KillWorkers` waits until an attempt has been in the state `when` for `after_s` seconds. Without `every_s`, it
then makes one random draw. With `every_s`, it makes one draw in each of the following intervals of that
length, at a random moment of the interval. A draw kills the worker with probability `chance`.

    ── starting ──┬── running ──────────────────────────────────▶
                  ├ after_s ┼─── every_s ──┼─── every_s ──┼─ …
                            │  draw        │       draw   │
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
from pathlib import Path
from typing import NoReturn

from launchpad.courier import caller
from launchpad.launch.running import Running
from launchpad.runtime import context

_POLL_S = 0.002
_STATES = ("starting", "running", "stopping")

_STILL_S = 1.0
_STILL = "tTZX"
"""The kernel's states of threads that don't run, because they are stopped or have ended."""


@dataclass(frozen=True)
class Kill:
    """A kill: the worker and the attempt, its state, and the number of seconds after the block began.

    `how` is the signal's name. If workers are threads, it is `Stopped`, the exception that was raised in the
    thread instead.

    Example:
        with lp.testing.KillWorkers(running, ["mapper"], seed=7, at_most=1) as kills:
            running.wait(60)
        for kill in kills.done:
            print(kill.worker, kill.attempt, kill.how)
    """

    worker: str
    attempt: int
    state: str
    at_s: float
    how: str

    def __str__(self) -> str:
        return f"{self.worker} (attempt {self.attempt}, {self.state}) by {self.how} at {self.at_s:.3f} s"


class KillWorkers:
    """A block that kills workers of a running program, and lists the kills.

    Example:
        with lp.testing.KillWorkers(running, ["mapper"], seed=7, chance=0.2, every_s=0.1) as kills:
          running.wait(60)
        print(kills)                                  # 3 kills (seed 7): mapper-0 × 1, mapper-3 × 2

    The results of the draws depend only on the seed, the worker's name and the attempt, not on the machine's
    speed. But the number of draws does depend on the machine's speed. Give the groups a `RestartPolicy` with
    many restarts. Otherwise the first kill ends the program.

    A thread cannot be killed. If workers are threads, `lp.Stopped` is raised in the worker's thread, and its
    end counts as a failure. The worker's server is closed, but calls that already run may still be answered.
    If workers are pods, the signal is always SIGKILL, and takes effect a second or two after the draw. On
    Ray, only workers on this host are killed.

    Args:
        running: The program.
        groups: Labels of the groups whose workers are killed. None means all groups.
        seed: The seed of the draws. The same seed gives the same draws.
        when: The state in which workers are killed: `starting` (until the worker is ready), `running` or
            `stopping`.
        after_s: Seconds to wait before the first draw for an attempt.
        every_s: The length, in seconds, of the intervals with one draw each. With None, there is only one
            draw for each attempt.
        chance: The probability with which a draw kills.
        at_most: The largest number of kills. None means no limit.
        with_signal: The signal to send.

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
        if isinstance(groups, str):
            raise TypeError(f"groups are several labels, [{groups!r}], not one")
        unknown = sorted(set(groups or ()) - set(running.plan.groups))
        if unknown:
            labels = list(running.plan.groups)
            raise KeyError(f"there is no group {unknown} to kill workers of; there are {labels}")
        if when not in _STATES:
            raise ValueError(f"when is one of {', '.join(_STATES)}, not {when!r}")
        if not 0 <= chance <= 1:
            raise ValueError(f"chance is how often, from 0 to 1, not {chance!r}")
        self.done: list[Kill] = []
        self._running = running
        self._groups = groups
        self._seed = seed
        self._when = when
        self._after_s = after_s
        self._every_s = every_s
        self._chance = chance
        self._signal = with_signal
        self._left = math.inf if at_most is None else at_most
        self._decisions: dict[tuple[str, int], _KillDecision] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="launchpad-kills", daemon=True)
        self._began = 0.0

    def __enter__(self) -> KillWorkers:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def __str__(self) -> str:
        times = Counter(kill.worker for kill in self.done)
        counts = ", ".join(f"{worker} × {times[worker]}" for worker in sorted(times)) or "none"
        return f"{len(self.done)} kills (seed {self._seed}): {counts}"

    def _watch(self) -> None:
        while self._left > 0 and not self._is_over.wait(_POLL_S):
            for status in self._running.status():
                is_in_group = self._groups is None or status.label in self._groups
                if self._left <= 0 or status.state != self._when or not is_in_group:
                    continue
                attempt = (status.worker, status.attempt)
                if attempt not in self._decisions:
                    self._decisions[attempt] = _KillDecision(self._draws(*attempt))
                if not self._decisions[attempt].is_due():
                    continue
                # `how` stays empty if the worker hasn't started yet, or has ended. In this case there is no
                # kill.
                how = ""
                if status.pid is None:
                    why = "killed by lp.testing.KillWorkers, as far as a thread can be"
                    how = self._running.crash(status.worker, why)
                else:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(status.pid, self._signal)
                        how = self._signal.name
                if how:
                    self._decisions[attempt].is_final = True
                    at_s = time.monotonic() - self._began
                    self.done.append(Kill(*attempt, status.state, at_s, how))
                    self._left -= 1

    def _draws(self, worker: str, attempt: int) -> Iterator[tuple[float, bool]]:
        """Yield a pair for each draw: the number of seconds after which it is due, and True if it kills."""
        rng = random.Random(f"{self._seed} {worker} {attempt}")
        for i in itertools.count():
            wait_s = 0.0 if self._every_s is None else (i + rng.random()) * self._every_s
            yield self._after_s + wait_s, rng.random() < self._chance
            if self._every_s is None:
                return


@contextlib.contextmanager
def freeze(running: Running, worker: str) -> Iterator[None]:
    """Stop the worker's process with SIGSTOP while the block runs, and continue it afterwards.

    The worker's connections stay open, so no other process notices. A machine that swaps, or a debugger,
    has the same effect.

    Example:
        with lp.testing.freeze(running, "learner-0"):
          with pytest.raises(lp.courier.DeadlineExceeded):
            client.with_options(timeout_s=1).step()

    Raises:
        KeyError: There is no such worker.
        RuntimeError: The worker has no process of its own because it is a thread, or it isn't running.
    """
    pid = _process_of(running, worker)
    _send(pid, signal.SIGSTOP)
    try:
        # Threads that run on other processors stop a little after the signal was sent. Wait for these, so
        # that no thread of the worker runs when the block begins.
        deadline = time.monotonic() + _STILL_S
        states = ["R"]
        while not all(state in _STILL for state in states) and time.monotonic() < deadline:
            time.sleep(0.001)
            states = []
            for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
                # The thread may have ended in the meantime.
                with contextlib.suppress(OSError):
                    # Search from the right: the thread's name, in parentheses, may contain anything.
                    states.append(stat.read_text().rpartition(") ")[2][:1])
        yield
    finally:
        _send(pid, signal.SIGCONT)


@contextlib.contextmanager
def throttle(
    running: Running, worker: str, share: float = 0.1, period_s: float = 0.05
) -> Iterator[None]:
    """Let the worker run only for a share of the time while the block runs.

    Example:
        with lp.testing.throttle(running, "worker-3", share=0.2):    # a straggler: five times slower
          running.wait(60)

    Args:
        running: The program.
        worker: The name of the worker to slow down.
        share: The part of each period in which the worker runs, between 0 and 1.
        period_s: The length of a period in seconds.

    Raises:
        KeyError: There is no such worker.
        RuntimeError: The worker has no process of its own because it is a thread, or it isn't running.
    """
    if not 0 < share < 1:
        raise ValueError(f"share is how much of the time it runs, between 0 and 1, not {share!r}")
    pid = _process_of(running, worker)
    is_over = threading.Event()

    def alternate() -> None:
        while not is_over.wait(share * period_s):
            _send(pid, signal.SIGSTOP)
            is_over.wait((1 - share) * period_s)
            _send(pid, signal.SIGCONT)

    thread = threading.Thread(target=alternate, name="launchpad-throttle")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


class _KillDecision:
    """The draws for one attempt. Once a draw has killed it, `is_final` is True and nothing kills it again."""

    def __init__(self, draws: Iterator[tuple[float, bool]]) -> None:
        self._draws = draws
        self._began = time.monotonic()
        self._due_s, self._kills = next(draws)
        self.is_final = False

    def is_due(self) -> bool:
        """Return True if one of the draws that are due by now kills the attempt."""
        while not self.is_final and time.monotonic() - self._began >= self._due_s:
            if self._kills:
                return True
            self._due_s, self._kills = next(self._draws, (math.inf, False))
        return False


def _process_of(running: Running, worker: str) -> int:
    statuses = {status.worker: status for status in running.status()}
    if worker not in statuses:
        raise KeyError(f"there is no worker {worker!r}; there are {list(statuses)}")
    if statuses[worker].pid is None:
        raise RuntimeError(
            f"{worker} ({statuses[worker].state}) has no process of its own that could be stopped. Threads"
            " cannot be stopped from outside: launch with test_mp or local_mp, and wait until it runs."
        )
    return statuses[worker].pid or 0


def _send(pid: int, number: signal.Signals) -> None:
    # The process may have ended in the meantime.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def crash() -> NoReturn:
    """Kill the worker that calls this, as if its machine had lost power: without cleanup or a message.

    Use it to test what happens after a worker dies at a certain step. `KillWorkers` can't choose the step.

    Example:
        if step == 20 and lp.current().attempt == 1:
          lp.testing.crash()

    The process gets SIGKILL, so everything else in the process dies, too. If the worker is a thread, it
    cannot be killed, so `crash` raises RuntimeError. If a remote method of this worker calls `crash`, the
    worker's server is closed first, so that callers see a lost worker, and not the error.

    Raises:
        RuntimeError: The worker is a thread, as with `local_mt`. Don't catch this error, because it should
            end the worker.
    """
    me = context.current()
    if me.launch_type.endswith("mt"):
        why = f"{me.name} crashes, by an error, as a thread cannot be killed"
        if caller.current.get() is not None:
            # Close the server from another thread. If a method closed its own server, its caller would still
            # get an answer.
            thread = threading.Thread(target=me.link.crash, args=(why,), name="launchpad-crash")
            thread.start()
            thread.join()
        raise RuntimeError(why)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL returns nowhere")
