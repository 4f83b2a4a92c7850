"""A call to all clients in which each has its part of an argument."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, TypeVar, cast

from launchpad.courier.client.fan_out import FanOut, Join, Request
from launchpad.courier.client.group import ClientGroup, checked

T = TypeVar("T")


def scatter(clients: Iterable[Any]) -> ClientGroup:
    """All clients as one, to which a call gives parts: part i to client i, other arguments to all.

    Example:
        def run(self):
            gradient = compute(...)
            parts = np.array_split(gradient, len(self._shards))
            sizes = lp.scatter(self._shards).push(me.name, lp.parts(parts))    # a list of answers

    Side by side, and in all else as `broadcast`: returns when all have answered, in the order of the
    clients; if some fail, the exception of the first is raised, with a note that lists every failure;
    `.futures` gives a list of futures, `.aio` is awaited.

    A call raises, in its own line and before any client is asked, ValueError if there is not a part for
    each client, and TypeError if no argument is of `lp.parts`. (MPI calls this Scatter.)
    """
    return ClientGroup(Scatter(checked(clients, "scatter")))


def parts(values: Iterable[T]) -> T:
    """Marks an argument of `lp.scatter` that has a part for each client: a list, or the rows of an array.

    Example:
        lp.scatter(workers).step(lp.parts([batch[:32], batch[32:]]), learning_rate=0.1)

    To type checkers it is one of its parts, which is what the method takes.
    """
    return cast("T", Parts(tuple(values)))


class Parts:
    """An argument with a part for each client, on its way to `Scatter`."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "lp.parts(…) marks an argument of a call of lp.scatter(clients), by position or by keyword;"
            " no other call takes it, nor is it found inside of another argument"
        )


class Scatter(FanOut):
    """Gives each client its part of the arguments; the answer is the list of theirs."""

    name = "scatter"

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Request], Join]:
        n = len(self.clients)
        values_of_all = (*args, *kwargs.values())
        given = [each.values for each in values_of_all if isinstance(each, Parts)]
        self.refuse_streams(each for each in values_of_all if not isinstance(each, Parts))
        # An iterator among the parts is its client's own: the same one for two clients is shared, too.
        client_of: dict[int, int] = {}
        for values in given:
            for i, value in enumerate(values):
                if client_of.setdefault(id(value), i) != i:
                    self.refuse_streams([value])
        if not given:
            raise TypeError(
                "a call of lp.scatter has parts for its clients, and this one has none: give it"
                " lp.parts(a list of them), or call lp.broadcast(clients) with the same for all"
            )
        for values in given:
            if len(values) != n:
                raise ValueError(f"{len(values)} parts for {n} clients: there must be one for each")

        def part(value: Any, i: int) -> Any:
            return value.values[i] if isinstance(value, Parts) else value

        return [
            Request(
                i,
                tuple(part(each, i) for each in args),
                {name: part(each, i) for name, each in kwargs.items()},
            )
            for i in range(n)
        ], list
