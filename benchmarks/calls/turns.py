"""Everybody's turn, round by round.

Each contender has a client process and a server process of its own, new in every round, because
where the loader happens to place a process moves its figures by a third. They take turns, so that
whatever else the machine does hits all of them alike, and every placement turns the order around.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from benchmarks.calls.contender import Contender
from benchmarks.calls.pair import Failed, Pair
from benchmarks.calls.placement import Placement

Found = dict[str, dict[str, list[Any]]]  # what each turn found, by placement and contender


def take_turns(
    contenders: list[Contender],
    placements: list[Placement],
    rounds: int,
    measure: Callable[[Pair], Any],
) -> Found:
    """What `measure` finds out about each, in every placement and every round.

    A contender that fails is named and left out: from the turns to come, and from what is found.
    """
    found: Found = {placement.name: {} for placement in placements}
    taking_part = list(contenders)
    for i in range(rounds):
        with ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            pairs = [Pair(stack, c, f"{directory}/{n}") for n, c in enumerate(taking_part)]
            for pair in pairs:  # whose processes all start meanwhile
                pair.connect()
            for turn, placement in enumerate(placements, start=i):
                for pair in pairs if turn % 2 else reversed(pairs):
                    take_turn(pair, placement, measure, found[placement.name], taking_part)
    names = [contender.name for contender in taking_part]
    return {
        placement: {name: each[name] for name in names if name in each}
        for placement, each in found.items()
    }


def take_turn(
    pair: Pair,
    placement: Placement,
    measure: Callable[[Pair], Any],
    found: dict[str, list[Any]],
    taking_part: list[Contender],
) -> None:
    if pair.contender not in taking_part:
        return
    try:
        pair.pin(placement)
        found.setdefault(pair.contender.name, []).append(measure(pair))
    except Failed as error:
        print(f"    {pair.contender.name} failed and is left out: {error}", flush=True)
        taking_part.remove(pair.contender)
