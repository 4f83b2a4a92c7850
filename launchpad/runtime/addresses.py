"""Addresses as a worker knows them: where the program's servers are, and where its own serve."""

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
        can_move: True if servers may move: then `endpoints` changes, and lacks those of servers that are not
            up yet.
        listens_at: Where servers listen for clients on other hosts, `tcp:10.0.0.5:0`; empty where there are
            none.
        known_as: Address → the endpoint that others connect to, where it differs from what its server
            listens at.
        ordering: How the calls of the worker's server are ordered, `edges.Record` or `Replay`; None: as they
            come.
    """

    endpoints: Mapping[str, str] = field(default_factory=dict)
    can_move: bool = False
    listens_at: str = ""
    known_as: Mapping[str, str] = field(default_factory=dict, repr=False)
    ordering: Any = field(default=None, repr=False)
