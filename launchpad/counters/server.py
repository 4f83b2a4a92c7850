"""CounterServer: what a CounterNode serves. Coroutines of one event loop, so no lock is needed."""

from __future__ import annotations

import time
from collections.abc import Mapping

from launchpad.counters.counts_by_client import CountsByClient, Sums
from launchpad.runtime import context
from launchpad.runtime.callers import Caller, caller, has_ended
from launchpad.services.long_poll import Changes

_FOLD_FROM = 64
"""So many clients are known before it is looked which are gone."""


class CounterServer:
    """Adds up what clients report."""

    def __init__(self) -> None:
        self._counts = CountsByClient()
        self._changes = Changes()
        self._fold_from = _FOLD_FROM

    async def report(self, client: str, sums: Sums) -> dict[str, float]:
        """Takes the sums of what a client has added so far, of all its calls; returns the totals."""
        self._take(client, sums)
        return self._counts.totals()

    async def wait_for(
        self, client: str, sums: Sums, targets: Mapping[str, float], wait_s: float
    ) -> dict[str, float] | None:
        """The totals as soon as all targets are reached; None if that is not within the time."""
        self._take(client, sums)
        deadline = time.monotonic() + wait_s
        while True:
            totals = self._counts.totals()
            if all(totals.get(name, 0) >= target for name, target in targets.items()):
                return totals
            if (left_s := deadline - time.monotonic()) <= 0:
                return None
            await self._changes.within(left_s)

    async def save(self) -> CountsByClient:
        return self._counts.copy()

    async def restore(self, saved: CountsByClient) -> None:
        self._counts = saved
        if context.current().attempt == 1:  # another launch: none of its clients is there any more
            self._counts.fold(lambda owner: True)

    def _take(self, client: str, sums: Sums) -> None:
        if self._counts.report(client, caller(), sums):
            self._changes.wake()
        if len(self._counts.owners) > self._fold_from:
            self._counts.fold(lambda owner: isinstance(owner, Caller) and has_ended(owner))
            self._fold_from = 2 * len(self._counts.owners) + _FOLD_FROM
