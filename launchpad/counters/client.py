"""Counter: the client of a counter, made from the handle of a CounterNode."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any

from launchpad.courier import fork
from launchpad.courier.interruptions import Lock, is_interruption
from launchpad.services.requests import ClientSession
from launchpad.services.waiting import Poll


class Counter:
    """Named counts that all nodes of a program share and that only grow. Safe from any thread.

    Example:
        def act(counter: lp.Counter) -> None:
          counter = counter.child("actor")
          while True:
            steps = run_episode()
            totals = counter.increment(steps=steps, episodes=1)      # of all actors
            if totals["actor_steps"] > 1_000_000:
              lp.stop()

    In a worker, a handle of `lp.CounterNode` turns into a Counter. In the launching script,
    `running.client("counter")` returns one. A Counter can be pickled. The copy counts as another client, and
    so does the counter in a forked process.

    An increment is counted once, even if its call is repeated. It is durable once the counter's worker has
    saved its state. If the worker is killed before that, each client that still runs adds what is missing of
    its own increments with its next call.

    Counter corresponds to Acme's `acme.utils.counting.Counter`, but counts for a whole program.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._prefix = ""
        self._own = _OwnSums(client)

    def child(self, prefix: str) -> Counter:
        """Return a view of this counter that puts the prefix and an underscore before each name.

        Raises:
            ValueError: the prefix is empty.
        """
        if not prefix:
            raise ValueError("a child of a counter needs a prefix that is not empty")
        view = object.__new__(Counter)
        view._client = self._client
        view._own = self._own
        view._prefix = f"{self._prefix}{prefix}_"
        return view

    def increment(self, **by: float) -> dict[str, float]:
        """Add to several counts at once, and return the new totals of all counts.

        numpy scalars, and tensors with one element, are added as Python's int or float.

        Raises:
            ValueError: a number is negative, infinite, or not a number: counts only grow.
            Stopped: the program stops.
        """
        plain_numbers = {}
        for name, number in by.items():
            plain = _plain_number(number)
            if plain is None or not 0 <= plain < math.inf:
                raise ValueError(
                    f"{name}={number!r}: counts only grow, by finite numbers of 0 or more"
                )
            plain_numbers[f"{self._prefix}{name}"] = plain
        return self._own.add(plain_numbers)

    def get_counts(self) -> dict[str, float]:
        """Return the totals of all counts, by full name."""
        return self._own.add({})

    def wait_for(self, *, timeout_s: float | None = None, **at_least: float) -> dict[str, float]:
        """Wait until each of these counts has reached its target, and return the totals of all counts.

        Example:
            counter.child("actor").wait_for(steps=1000, timeout_s=60)

        Raises:
            ValueError: a target is not a number.
            TimeoutError: the timeout passed first; the message says how far the counts had come.
            Stopped: the program stops.
        """
        targets = {}
        for name, number in at_least.items():
            target = _plain_number(number)
            if target is None or math.isnan(target):
                raise ValueError(f"{name}={number!r}: a count is compared with a number")
            targets[f"{self._prefix}{name}"] = target
        try:
            return self._own.wait_for(targets, timeout_s)
        except TimeoutError as error:
            if is_interruption(error):
                raise
            totals = self.get_counts()
            short = {n: totals.get(n, 0) for n in targets if totals.get(n, 0) < targets[n]}
            raise TimeoutError(
                f"within {timeout_s} s not all counts came to {targets}: {short}"
            ) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._client, self._prefix)

    def __repr__(self) -> str:
        return f"Counter({self._client!r}, {self._prefix!r})"


class _OwnSums(ClientSession):
    """The sums that this client and its children have added. The server keeps them by the session's key.

    A forked child begins with sums of 0, because the parent reports its own additions.
    """

    _sums: dict[str, float]

    def __init__(self, client: Any) -> None:
        super().__init__()
        self._poll = Poll(client)
        # If two threads add at once, no addition may be lost between reading a sum and writing it.
        self._lock = fork.free_in_child(Lock())
        self._seen: dict[str, float] = {}

    def renew(self) -> None:
        super().renew()
        self._sums = {}

    def add(self, by: dict[str, float]) -> dict[str, float]:
        with self._lock:
            for name, number in by.items():
                self._sums[name] = self._sums.get(name, 0) + number
            sums = self._sums.copy()
        return self._grown(self._poll.call("report", self.key, sums))

    def wait_for(self, targets: dict[str, float], timeout_s: float | None) -> dict[str, float]:
        with self._lock:
            sums = self._sums.copy()
        totals = self._poll.ask("wait_for", self.key, sums, targets, timeout_s=timeout_s)
        return self._grown(totals)

    def _grown(self, totals: dict[str, float]) -> dict[str, float]:
        """Return, for each count, the largest total that this client has seen.

        After a kill, the counter may lack its last seconds until all clients have reported again.
        """
        with self._lock:
            for name, total in totals.items():
                self._seen[name] = max(total, self._seen.get(name, 0))
            return dict(sorted(self._seen.items()))


def _plain_number(number: Any) -> float | None:
    """Return the number as Python's int or float. Return None if it is not a number.

    numpy's small integers must not be added as they are: their sum would keep their type, and overflow.
    """
    if hasattr(number, "item"):
        # It is a numpy scalar, an array or a tensor.
        try:
            number = number.item()
        except (TypeError, ValueError, RuntimeError):
            # It has several elements.
            return None
    if isinstance(number, int):
        return int(number)
    if isinstance(number, numbers.Real):
        return float(number)
    if hasattr(number, "__index__"):
        return operator.index(number)
    return None


def _rebuild(client: Any, prefix: str) -> Counter:
    counter = Counter(client)
    return counter.child(prefix.removesuffix("_")) if prefix else counter
