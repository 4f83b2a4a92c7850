"""The ranks, as the algorithm sees them."""

from typing import Protocol

from examples._shared.data import Array


class Group(Protocol):
    """The part of `lp.Collective` that ZeRO uses. A test can make do with less than a whole one."""

    rank: int
    size: int

    def all_reduce(self, x: list[Array], op: str) -> list[Array]: ...
    def reduce_scatter(self, x: list[Array], op: str) -> list[Array]: ...
    def all_gather(self, x: list[Array]) -> list[list[Array]]: ...
