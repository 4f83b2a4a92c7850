"""CounterNode: a node that serves a counter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launchpad.counters.client import Counter
from launchpad.counters.server import CounterServer
from launchpad.nodes.courier import CourierNode, ServiceHandle


class CounterHandle(ServiceHandle[Counter]):
    """The handle of a CounterNode; in a worker it turns into a `Counter`."""

    made_into = Counter


class CounterNode(CourierNode[CounterServer]):
    """A node with counts that all nodes share, such as steps, episodes and updates, as in Acme.

    Example:
        counter = program.add_node(lp.CounterNode(), label="counter")
        program.add_node(lp.PyNode(act, counter), label="actor")     # counter.increment(actor_steps=3)

    The counts survive restarts of the node, and launches with `state=`. They are saved at each orderly end,
    and every `save_every_s` seconds of the group's `lp.RestartPolicy`.

    Args:
        courier_kwargs: As for `CourierNode`.
    """

    def __init__(self, *, courier_kwargs: Mapping[str, Any] | None = None) -> None:
        super().__init__(CounterServer, courier_kwargs=courier_kwargs)

    def create_handle(self) -> CounterHandle:
        return CounterHandle(self, self._address, self._client_kwargs)

    def __repr__(self) -> str:
        return "CounterNode()"
