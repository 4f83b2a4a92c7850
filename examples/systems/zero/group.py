"""The ranks, as the algorithm sees them."""

from typing import Protocol

from examples._shared.digits import Array


class Group(Protocol):
    """As much of `lp.Collective` as is needed: a test can do with less than that."""

    rank: int
    size: int

    def all_reduce(self, x: list[Array], op: str) -> list[Array]: ...
    def reduce_scatter(self, x: list[Array], op: str) -> list[Array]: ...
    def all_gather(self, x: list[Array]) -> list[list[Array]]: ...
