"""The servers of a cluster: reservations, through which nodes find each other, and the parameter server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import launchpad as lp
from examples._shared.data import Array
from examples._shared.shard import ShardState
from examples.systems.tf_on_spark.algorithm import Id

Ledger = list[list[list[Id]]]
"""By step and worker, the rows whose changes are in the parameters."""


class NotAllRegistered(lp.DoNotRestart, TimeoutError):
    """The cluster was not complete in time. Workers that waited for it aren't started again."""


class Reservations:
    """The server with which nodes register. Its methods are coroutines on one loop, so it needs no locks.

    Args:
        expected: The names of the nodes.
        limit_s: How long a node waits for the others.
    """

    def __init__(self, expected: Iterable[str], limit_s: float) -> None:
        self._absent = set(expected)
        self._limit_s = limit_s
        self._addresses: dict[str, Any] = {}
        self._is_complete = asyncio.Event()

    async def register(self, name: str, address: Any) -> dict[str, Any]:
        """Register a node, perhaps again. Wait until the cluster is complete, and return all addresses."""
        self._absent.discard(name)
        self._addresses[name] = address
        if not self._absent:
            self._is_complete.set()
        return await self.cluster()

    async def cluster(self) -> dict[str, Any]:
        """Wait until the cluster is complete, and return all addresses. For nodes outside of it, too."""
        try:
            await asyncio.wait_for(self._is_complete.wait(), self._limit_s)
        except TimeoutError:
            raise NotAllRegistered(
                f"not registered within {self._limit_s:g} s: {', '.join(sorted(self._absent))};"
                f" registered: {', '.join(sorted(self._addresses)) or 'none'}"
            ) from None
        return self._addresses


class ParameterServer:
    """A parameter server. In each step it applies the mean change over all workers' rows.

    Args:
        me: A client of this server. The server registers it, and workers get it from the reservations.
    """

    def __init__(
        self, first: Array, workers: int, reservations: lp.CourierClient[Reservations], me: Any
    ) -> None:
        self._state = ShardState(first, workers)
        self._ledger: Ledger = []
        self._reservations = reservations
        self._me = me

    def run(self) -> None:
        """Register. The server serves until the program ends."""
        lp.submit(self._reservations.register, "ps", self._me).result()

    @lp.idempotent
    def begin(self, worker: int) -> tuple[Array, int, list[Id]]:
        """Return the parameters, the worker's next step, and its rows that are in the parameters.

        If an earlier attempt has pushed in a step that isn't complete, that doesn't count.
        """
        with self._state.changed:
            self._state.withdraw(worker)
            own = [id_ for step in self._ledger for id_ in step[worker]]
            return self._state.value, len(self._ledger), own

    @lp.idempotent
    def push(self, worker: int, step: int, change: Array, ids: list[Id]) -> tuple[Array, int]:
        """Wait for all workers' changes. Return the new parameters, and the step's number of rows."""
        with self._state.changed:
            pushed = self._state.gather(worker, step, (change, ids))
            if pushed:
                self._ledger.append([rows for _, rows in pushed])
                n_rows = sum(len(rows) for _, rows in pushed) or 1
                total = sum(len(rows) * mean for mean, rows in pushed)
                self._state.value = self._state.value + total / n_rows
                self._state.count(slice(None))
            self._state.wait(step + 1)
            return self._state.value, sum(map(len, self._ledger[step]))

    @lp.idempotent
    def ledger(self) -> Ledger:
        """Return the rows of all steps."""
        with self._state.changed:
            return self._ledger
