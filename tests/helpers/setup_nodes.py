"""Functions that set up a program's workers, and nodes that check the setup."""

from __future__ import annotations

import os

import launchpad as lp

DONE: list[tuple[str, int]] = []
"""The setups that have run, and the process of each."""


def set_up_program() -> None:
    DONE.append(("program", os.getpid()))


def set_up_group() -> None:
    DONE.append(("group", os.getpid()))


def fail() -> None:
    raise LookupError("no such environment")


class Looks:
    """An object that is unpickled after the setup that it needs."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def __setstate__(self, state: dict[str, int]) -> None:
        self.__dict__ = state
        self.found_at_unpickling = [name for name, _ in DONE]


def look(looks: Looks) -> tuple[list[str], list[str], set[int], int]:
    """Return the setups at the unpickling, those now, their processes, and this process."""
    return (
        looks.found_at_unpickling,
        [name for name, _ in DONE],
        {pid for _, pid in DONE},
        os.getpid(),
    )


def look_again(looks: Looks) -> tuple[list[str], list[str], set[int], int]:
    """Fail in the first attempt, and look in the second."""
    if lp.current().attempt == 1:
        raise ValueError("once")
    return look(looks)
