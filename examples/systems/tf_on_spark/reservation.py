"""Reservations: each node registers, and learns where the others are when all have registered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import launchpad as lp


class NotAllRegistered(lp.DoNotRestart, TimeoutError):
    """The cluster was not complete in time. Workers that waited for it aren't started again."""


Cluster = dict[str, list[Any]]
"""By role, the address of each node."""


class Reservations:
    """The server with which nodes register. Its methods are coroutines on one loop, so it needs no locks.

    Args:
        expected: How many nodes of each role there will be.
        limit_s: How long a node waits for the others.
    """

    def __init__(self, expected: Mapping[str, int], limit_s: float) -> None:
        self._expected = [(role, i) for role, n in expected.items() for i in range(n)]
        self._limit_s = limit_s
        self._registered: dict[tuple[str, int], Any] = {}
        self._is_complete = asyncio.Event()

    async def register(self, role: str, index: int, address: Any) -> Cluster:
        """Register a node, perhaps again. Wait until the cluster is complete, and return it.

        Raises:
            NotAllRegistered: The cluster was not complete in time. The message says who is absent.
        """
        if (role, index) not in self._expected:
            raise ValueError(f"{role} {index} does not belong to {self._names(self._expected)}")
        self._registered[role, index] = address
        if len(self._registered) == len(self._expected):
            self._is_complete.set()
        return await self.cluster()

    async def cluster(self) -> Cluster:
        """Wait until the cluster is complete, and return it. For nodes that don't belong to it, too."""
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
