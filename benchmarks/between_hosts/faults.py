"""The faults of a pair of hosts, and a random schedule of them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from benchmarks.between_hosts.pair import Pair

LONGEST_S = 8.0
_SHORTEST_S = 1.0

# So long that all calls of one fault have ended before the next one.
_PAUSES_S = (4.5, 5.5)


class Fault(NamedTuple):
    """A fault that a pair of hosts has had, with times of this process's `time.monotonic()`.

    Attributes:
        kind: A key of `KINDS`.
        began: The time just before it began.
        mending: The time just before its end.
        mended: The time at which it had ended for sure.
    """

    kind: str
    began: float
    mending: float
    mended: float

    @property
    def is_silent(self) -> bool:
        """True if the other host's kernel hears nothing. A frozen host's kernel still acknowledges."""
        return self.kind != FREEZE

    @property
    def ends_connections(self) -> bool:
        """True if no connection survives the fault, however short it is."""
        return self.kind in (POWER, ADDRESS)


class PlannedFault(NamedTuple):
    """A fault that a pair of hosts is to have, after a pause without one."""

    pause_s: float
    kind: str
    lasts_s: float


@contextlib.contextmanager
def _cable_out(pair: Pair) -> Iterator[None]:
    host = pair.draw_host()
    host.pull_cable()
    yield
    host.plug_in()


@contextlib.contextmanager
def _loss_in(pair: Pair) -> Iterator[None]:
    host = pair.draw_host()
    host.blackhole("in")
    yield
    host.end_losses()


@contextlib.contextmanager
def _loss_out(pair: Pair) -> Iterator[None]:
    host = pair.draw_host()
    host.blackhole("out")
    yield
    host.end_losses()


@contextlib.contextmanager
def _cut(pair: Pair) -> Iterator[None]:
    pair.network.cut(pair.caller_host, pair.server_host)
    yield
    pair.caller_host.end_losses()
    pair.server_host.end_losses()


@contextlib.contextmanager
def _pause(pair: Pair) -> Iterator[None]:
    pair.server_host.pause()
    yield
    pair.server_host.resume()


@contextlib.contextmanager
def _freeze(pair: Pair) -> Iterator[None]:
    pair.server_host.freeze()
    yield
    pair.server_host.thaw()


@contextlib.contextmanager
def _power(pair: Pair) -> Iterator[None]:
    pair.lose_power()
    yield
    pair.boot()


@contextlib.contextmanager
def _new_address(pair: Pair) -> Iterator[None]:
    pair.lose_address()
    yield
    pair.get_other_address()


FREEZE = "freeze"
POWER = "power"
ADDRESS = "address"

KINDS: dict[str, Callable[[Pair], AbstractContextManager[None]]] = {
    "cable": _cable_out,
    "in": _loss_in,
    "out": _loss_out,
    "cut": _cut,
    "pause": _pause,
    FREEZE: _freeze,
    POWER: _power,
    ADDRESS: _new_address,
}
"""Kind → a context manager, in whose block a pair of hosts has the fault."""


def draw(
    seed: int, kinds: Sequence[str], n_faults: int, n_pairs: int, longest_s: float = LONGEST_S
) -> list[list[PlannedFault]]:
    """Return a schedule for each pair. All kinds are in them equally often, in random order."""
    rng = random.Random(seed)
    all_kinds = [kinds[number % len(kinds)] for number in range(n_faults)]
    rng.shuffle(all_kinds)
    planned = [
        PlannedFault(rng.uniform(*_PAUSES_S), kind, rng.uniform(_SHORTEST_S, longest_s))
        for kind in all_kinds
    ]
    return [planned[number::n_pairs] for number in range(n_pairs)]
