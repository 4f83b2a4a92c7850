"""Reservation: each node says that it is there, and learns where the others are when all are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import launchpad as lp


class NotAllRegistered(lp.DoNotRestart, TimeoutError):
    """A cluster is not complete in time. Who waited for it is not started again, to wait once more."""


Cluster = dict[str, list[Any]]
"""By role, the address of each node."""


class Reservations:
    """Where the nodes of a cluster register. Its methods are coroutines: on one loop, without locks.

    Args:
        expected: How many nodes of each role there will be.
        limit_s: How long one waits for the others.
    """

    def __init__(self, expected: Mapping[str, int], limit_s: float) -> None:
        self._expected = [(role, i) for role, n in expected.items() for i in range(n)]
        self._limit_s = limit_s
        self._registered: dict[tuple[str, int], Any] = {}
        self._is_complete = asyncio.Event()

    async def register(self, role: str, index: int, address: Any) -> Cluster:
        """A node is there, or there again; return the cluster when it is complete.

        Raises:
            NotAllRegistered: it was not in time; says who is absent.
        """
        if (role, index) not in self._expected:
            raise ValueError(f"{role} {index} does not belong to {self._names(self._expected)}")
        self._registered[role, index] = address
        if len(self._registered) == len(self._expected):
            self._is_complete.set()
        return await self.cluster()

    async def cluster(self) -> Cluster:
        """Return the cluster when it is complete, as to one that does not belong to it."""
        try:
            await asyncio.wait_for(self._is_complete.wait(), self._limit_s)
        except TimeoutError:
            absent = [node for node in self._expected if node not in self._registered]
            raise NotAllRegistered(
                f"{self._names(absent)} {'has' if len(absent) == 1 else 'have'} not registered within"
                f" {self._limit_s:g} s; registered: {self._names(self._registered) or 'none'}"
            ) from None
        cluster: Cluster = {}
        for role, index in self._expected:
            cluster.setdefault(role, []).append(self._registered[role, index])
        return cluster

    @staticmethod
    def _names(nodes: Any) -> str:
        return ", ".join(f"{role} {index}" for role, index in sorted(nodes))
