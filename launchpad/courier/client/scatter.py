"""A call to all clients that gives each of them its part of an argument."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, TypeVar, cast

from launchpad.courier.client.fan_out import FanOut, Join, Request
from launchpad.courier.client.group import ClientGroup, checked

T = TypeVar("T")


def scatter(clients: Iterable[Any]) -> ClientGroup:
    """Return the clients as one group: each call gives part i to client i, and other arguments to all.

    Example:
        def run(self):
            gradient = compute(...)
            parts = np.array_split(gradient, len(self._shards))
            sizes = lp.scatter(self._shards).push(me.name, lp.parts(parts))    # a list of answers

    Otherwise the group works like that of `broadcast`. The clients run side by side, and the call returns
    when all have answered. The answers are in the order of the clients. If some fail, the call raises the
    first client's exception, with a note that lists every failure. `.futures` returns a list of futures, and
    you await the calls of `.aio`.

    A call raises ValueError if there is not exactly one part for each client, and TypeError if no argument
    is made by `lp.parts`. It raises them before it asks any client. (MPI calls this Scatter.)
    """
    return ClientGroup(Scatter(checked(clients, "scatter")))


def parts(values: Iterable[T]) -> T:
    """Mark an argument of `lp.scatter` that has a part for each client: a list, or the rows of an array.

    Example:
        lp.scatter(workers).step(lp.parts([batch[:32], batch[32:]]), learning_rate=0.1)

    To type checkers the marked argument has the type of one part, which the method takes.
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
    """A group that gives each client its part of the arguments. The result is the list of their results."""

    name = "scatter"

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Request], Join]:
        n = len(self.clients)
        values_of_all = (*args, *kwargs.values())
        all_parts = [value.values for value in values_of_all if isinstance(value, Parts)]
        self.refuse_streams(value for value in values_of_all if not isinstance(value, Parts))
        # An iterator in a part belongs to one client. Two clients must not get the same iterator.
        client_of: dict[int, int] = {}
        for values in all_parts:
            for i, value in enumerate(values):
                if client_of.setdefault(id(value), i) != i:
                    self.refuse_streams([value])
        if not all_parts:
            raise TypeError(
                "a call of lp.scatter has parts for its clients, and this one has none: give it"
                " lp.parts(a list of them), or call lp.broadcast(clients) with the same for all"
            )
        for values in all_parts:
            if len(values) != n:
                raise ValueError(f"{len(values)} parts for {n} clients: there must be one for each")

        def part(value: Any, i: int) -> Any:
            return value.values[i] if isinstance(value, Parts) else value

        requests = []
        for i in range(n):
            own_args = tuple(part(value, i) for value in args)
            own_kwargs = {name: part(value, i) for name, value in kwargs.items()}
            requests.append(Request(i, own_args, own_kwargs))
        return requests, list
