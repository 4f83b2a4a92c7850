"""The addresses that a worker knows: the endpoints of the program's servers, and its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from launchpad.courier.light_dataclass import dataclass


@dataclass(eq=False)
class KnownAddresses:
    """The addresses that a worker knows.

    Attributes:
        endpoints: Address → its endpoint.
        can_move: True if servers can move. Then `endpoints` changes, and lacks servers that are not up yet.
        listens_at: The endpoint at which servers listen for clients on other hosts, `tcp:10.0.0.5:0`; empty
            if all clients are on this host.
        known_as: Address → the endpoint that others connect to, for servers that listen at a different one.
        ordering: The order of calls in the worker's server, `edges.Record` or `Replay`. With None, calls run
            as they arrive.
    """

    endpoints: Mapping[str, str] = field(default_factory=dict)
    can_move: bool = False
    listens_at: str = ""
    known_as: Mapping[str, str] = field(default_factory=dict, repr=False)
    ordering: Any = field(default=None, repr=False)
