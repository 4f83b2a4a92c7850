"""What a program sets up in its workers, and nodes that look at it."""

from __future__ import annotations

import os

import launchpad as lp

DONE: list[tuple[str, int]] = []
"""What was set up, and in which process."""


def set_up_program() -> None:
    DONE.append(("program", os.getpid()))


def set_up_group() -> None:
    DONE.append(("group", os.getpid()))


def fail() -> None:
    raise LookupError("no such environment")


class Looks:
    """Is unpickled when what it needs has been set up."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def __setstate__(self, state: dict[str, int]) -> None:
        self.__dict__ = state
        self.found_at_unpickling = [what for what, _ in DONE]


def look(looks: Looks) -> tuple[list[str], list[str], set[int], int]:
    """Returns what was there at the unpickling, what is there now, by which processes; and this one."""
    return (
        looks.found_at_unpickling,
        [what for what, _ in DONE],
        {pid for _, pid in DONE},
        os.getpid(),
    )


def look_again(looks: Looks) -> tuple[list[str], list[str], set[int], int]:
    """Looks at the second attempt."""
    if lp.current().attempt == 1:
        raise ValueError("once")
    return look(looks)
