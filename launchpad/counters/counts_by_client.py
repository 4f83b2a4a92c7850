"""Counts, kept as one sum for each client, so that a late or repeated report is not added twice.

    client a: steps 5 ─┐
    client b: steps 3 ─┼─▶ steps: base 10 + 5 + 3 = 18
    base:     steps 10 ┘   (added by clients that are gone)

Each client reports the sums of everything it has added. For each name, only the largest sum that the client
has reported is used. This is a grow-only counter (Shapiro et al. 2011, "Conflict-free replicated data
types"). If a counter is killed and loses its last seconds, it recovers them from the next report of each
client that still runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

Sums = Mapping[str, float]


@dataclass
class CountsByClient:
    """Named counts, by client. Each client has a unique name, and an owner. Clients end with their owner."""

    base: dict[str, float] = field(default_factory=dict)
    of_clients: dict[str, dict[str, float]] = field(default_factory=dict)
    owners: dict[str, Hashable] = field(default_factory=dict)

    def report(self, client: str, owner: Hashable, sums: Sums) -> None:
        """Take the sums of everything that a client has added so far."""
        if not sums:
            return
        own = self.of_clients.setdefault(client, {})
        self.owners[client] = owner
        grown = {name: value for name, value in sums.items() if value > own.get(name, -1)}
        own.update(grown)

    def totals(self) -> dict[str, float]:
        """Return the totals of all counts, sorted by name."""
        totals = dict(self.base)
        for sums in self.of_clients.values():
            for name, value in sums.items():
                totals[name] = totals.get(name, 0) + value
        return dict(sorted(totals.items()))

    def fold(self, is_gone: Callable[[Hashable], bool]) -> None:
        """Forget the clients that are gone, and keep their counts in `base`."""
        for client in [c for c, owner in self.owners.items() if is_gone(owner)]:
            for name, value in self.of_clients.pop(client).items():
                self.base[name] = self.base.get(name, 0) + value
            del self.owners[client]

    def copy(self) -> CountsByClient:
        """Return a copy of the current counts."""
        of_clients = {client: dict(sums) for client, sums in self.of_clients.items()}
        return CountsByClient(dict(self.base), of_clients, dict(self.owners))
