"""CounterServer: the server of a CounterNode."""

from __future__ import annotations

from collections.abc import Mapping

from launchpad.counters.counts_by_client import CountsByClient, Sums
from launchpad.courier.promise import Promise
from launchpad.runtime import context
from launchpad.runtime.callers import Caller, caller, has_ended
from launchpad.services.waiting import WaitingCalls

_FOLD_FROM = 64
"""The number of clients above which the server checks which of them are gone."""


class CounterServer:
    """A server that adds up its clients' reports. Safe from any thread."""

    def __init__(self) -> None:
        self._counts = CountsByClient()
        self._calls = WaitingCalls("counter")
        # The line is not ordered, because each call waits for counts of its own.
        self._waiting = self._calls.line(is_ordered=False)
        self._fold_from = _FOLD_FROM

    def report(self, client: str, sums: Sums) -> dict[str, float]:
        """Take the sums of everything that a client has added so far, and return the totals."""
        with self._calls.changing():
            self._take(client, sums)
            return self._counts.totals()

    def wait_for(
        self, client: str, sums: Sums, targets: Mapping[str, float], wait_s: float
    ) -> dict[str, float] | Promise | None:
        """Return the totals once all targets are reached. Return None if that takes longer than `wait_s`."""

        def is_reached() -> bool:
            totals = self._counts.totals()
            return all(totals.get(name, 0) >= target for name, target in targets.items())

        with self._calls.changing():
            self._take(client, sums)
            return self._calls.answer(
                self._waiting, is_reached, self._counts.totals, lambda: None, wait_s
            )

    def save(self) -> CountsByClient:
        with self._calls.changing():
            return self._counts.copy()

    def restore(self, saved: CountsByClient) -> None:
        self._counts = saved
        if context.current().attempt == 1:
            # This is a new launch, in which no client of the previous launch exists any more.
            self._counts.fold(lambda owner: True)

    def _take(self, client: str, sums: Sums) -> None:
        self._counts.report(client, caller(), sums)
        if len(self._counts.owners) > self._fold_from:
            self._counts.fold(lambda owner: isinstance(owner, Caller) and has_ended(owner))
            self._fold_from = 2 * len(self._counts.owners) + _FOLD_FROM
