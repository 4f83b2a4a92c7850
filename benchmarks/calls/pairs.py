"""Pairs of a client's and a server's process, which take turns.

Each contender has processes of its own, new in every round, because the addresses at which the loader places
a process change its figures by up to a third. Every placement reverses the order of contenders.

one core    Both processes are pinned to one core. This shows the cost of the code.
two cores   Each process is pinned to a core of its own. This adds the kernel's time to wake the other one.
unpinned    The processes are not pinned, as in an ordinary run. The scheduler moves each contender back and
            forth between the two placements above, and the figures change with that. This is measured once
            after each of the two, so that all contenders begin in the same place.
"""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks.calls.contenders.contender import Contender
from benchmarks.harness.figures import Spread, Table, ratios, spread, summary
from benchmarks.harness.processes import Worker

UNPINNED = "unpinned"


@dataclass(frozen=True)
class Options:
    """The amount of work. With `quick` a measurement takes seconds, and its figures mean nothing."""

    rounds: int
    quick: bool = False

    def amount(self, usual: float, quick: float) -> Any:
        return quick if self.quick else usual


class Placement(NamedTuple):
    """The cores on which client and server run."""

    name: str
    client: set[int]
    server: set[int]


def unpinned() -> list[Placement]:
    everywhere = os.sched_getaffinity(0)
    return [Placement(UNPINNED, everywhere, everywhere)]


def placements() -> list[Placement]:
    """Return all placements, in order."""
    first_core, *other_cores = sorted(os.sched_getaffinity(0))
    order = [Placement("one core", {first_core}, {first_core}), *unpinned()]
    if other_cores:
        order += [Placement("two cores", {first_core}, {other_cores[0]}), *unpinned()]
    return order


def pinned() -> list[Placement]:
    """Return the placements in which all processes are pinned."""
    return [placement for placement in placements() if placement.name != UNPINNED]


class Failed(Exception):
    """An error of a contender whose calls did not succeed."""


def start_client(stack: ExitStack, connect: Callable[[Any], Any], place: Any = None) -> Worker:
    """Start a process with a client, for `ask_client`. Without `place`, the caller sends that itself."""
    client = Worker(stack, _be_client, connect)
    if place is not None:
        client.say(place)
        client.hear()
    return client


def ask_client(client: Worker, measure: Callable[..., Any], *args: Any) -> Any:
    """Return what `measure(client, *args)` finds in that process. Raises Failed if a call fails."""
    answer = client.ask((measure, args))
    if isinstance(answer, Failed):
        raise answer
    return answer


def _be_client(connect: Callable[[Any], Any], pipe: Connection) -> None:
    with connect(pipe.recv()) as client:
        pipe.send(True)
        while True:
            measure, args = pipe.recv()
            try:
                pipe.send(measure(client, *args))
            except Exception as error:
                traceback.print_exc()
                pipe.send(Failed(" ".join(repr(error).split())[:200]))


class Pair:
    """A new server and its client. They are killed when the stack is unwound."""

    def __init__(self, stack: ExitStack, contender: Contender, path: str) -> None:
        self.contender = contender
        self.server = Worker(stack, contender.serve, path)
        self.client = start_client(stack, contender.connect)

    def connect(self) -> None:
        self.client.say(self.server.hear())
        self.client.hear()

    def measure(self, measure: Callable[..., Any], *args: Any) -> Any:
        """Return what `measure(client, *args)` finds in the client's process."""
        return ask_client(self.client, measure, *args)

    def pin(self, placement: Placement) -> None:
        self.client.pin(placement.client)
        self.server.pin(placement.server)


Turns = dict[str, list[Any]]  # name of a contender → the figures of each turn


def available(contenders: Sequence[Contender]) -> list[Contender]:
    return [contender for contender in contenders if not contender.reason_to_skip()]


def take_turns(
    contenders: Sequence[Contender],
    where: Sequence[Placement],
    rounds: int,
    measure: Callable[[Pair], Any],
) -> dict[str, Turns]:
    """Return the figures of `measure` for each available contender, by placement.

    If a contender fails, the function prints its name, and leaves it out of later turns and of the result.
    """
    by_placement: dict[str, Turns] = {placement.name: {} for placement in where}
    taking_part = available(contenders)
    for i in range(rounds):
        with ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            pairs = [Pair(stack, c, f"{directory}/{n}") for n, c in enumerate(taking_part)]
            # All processes are starting by now, so that they start side by side.
            for pair in pairs:
                pair.connect()
            for turn, placement in enumerate(where, start=i):
                for pair in pairs if turn % 2 else reversed(pairs):
                    if pair.contender not in taking_part:
                        continue
                    try:
                        pair.pin(placement)
                        figure = measure(pair)
                    except Failed as error:
                        print(
                            f"    {pair.contender.name} failed and is left out: {error}", flush=True
                        )
                        taking_part.remove(pair.contender)
                        continue
                    by_placement[placement.name].setdefault(pair.contender.name, []).append(figure)
    names = [contender.name for contender in taking_part]
    return {
        placement: {name: turns[name] for name in names if name in turns}
        for placement, turns in by_placement.items()
    }


def take_turns_once(
    contenders: Sequence[Contender], measure: Callable[[Pair], Any]
) -> dict[str, Any]:
    """Return the figures of `measure` for each available contender: one turn, unpinned."""
    turns = take_turns(contenders, unpinned(), 1, measure)[UNPINNED]
    return {name: turn for name, (turn,) in turns.items()}


def summaries(
    turns: Turns, to: dict[str, tuple[str, str]] | None = None
) -> dict[str, dict[str, Spread]]:
    """Return the spreads of all figures and ratios, by contender.

    Args:
        turns: Name of a contender → the figures of each turn.
        to: Name of a ratio → its figure, and the contender to whose figure the ratio is.
    """
    spreads = {name: summary(rounds) for name, rounds in turns.items() if rounds}
    for ratio, (figure, base) in (to or {}).items():
        if base not in turns:
            continue
        base_figures = [turn[figure] for turn in turns[base]]
        for name in spreads:
            spreads[name][ratio] = ratios([turn[figure] for turn in turns[name]], base_figures)
    return spreads


def rates(turns: dict[str, list[float]], bases: Sequence[str]) -> dict[str, Any]:
    """Return each contender's calls a second, and their ratios to those of the bases that took part."""
    return {
        name: {"calls_per_s": spread(values)}
        | {
            f"to_{base.replace(' ', '_')}": ratios(values, turns[base])
            for base in bases
            if base in turns
        }
        for name, values in turns.items()
    }


def show_rates(title: str, rows: dict[str, Any]) -> None:
    print()
    bases = [name for name in next(iter(rows.values())) if name.startswith("to_")]
    heads = {f"{base.replace('_', ' ')} (range)": ",.2f" for base in bases}
    table = Table(title, {"calls/s (range)": ",.0f", **heads}, width=32)
    for name, row in rows.items():
        table.row(name, row["calls_per_s"], *(row[base] for base in bases))
