"""The types of clients: to a type checker, a client is an instance of the class whose methods it calls.

Python has no type for "everything that a Learner has, and a few things more". So to a checker a client of
a Learner *is* a Learner, and everything that only clients have is a function that takes the client or
its method: `submit(learner.step, batch)`.

Alternatives that we tried: docs/decisions/0006_a_client_is_typed_as_its_class.md.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeAlias, TypeVar, cast, overload

from launchpad.courier.client.channel import Channel
from launchpad.courier.client.client import Client, T
from launchpad.courier.client.fan_out import FanOut
from launchpad.courier.client.group import ClientGroup, SingleTarget
from launchpad.courier.client.options import Options

if TYPE_CHECKING:
    from concurrent.futures import Future

    CourierClient: TypeAlias = Annotated[T, "a client of an object of this class"]
else:
    CourierClient = Client

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")


@overload  # a server awaits its coroutines, so the caller gets their return values
def submit(
    method: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
) -> Future[R]: ...


@overload
def submit(method: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]: ...


def submit(method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
    """Call a client's method without waiting, and return a Future of its answer.

    Example:
        def train(learner: lp.CourierClient[Learner], batches: list[Batch]) -> float:
            losses = [lp.submit(learner.step, batch) for batch in batches]    # all are under way
            return sum(loss.result() for loss in losses)

    This is the same call as `learner.futures.step(batch)`, but typed: a checker compares the arguments
    with those of `Learner.step`, and knows the type of the Future's result. To call a client's
    `__call__`, give the client itself.

    A method of a local object runs at once, and the Future is done when `submit` returns. So a test may
    pass a Learner instead of its client.

    Raises:
        TypeError: The method cannot be called.
    """
    if isinstance(method, partial):
        # The methods of a client are partials of its channel's `call`. Those of a group are partials of the
        # `call` of its FanOut or SingleTarget.
        caller = getattr(method.func, "__self__", None)
        if isinstance(caller, Channel | FanOut | SingleTarget):
            future: Future[Any] = caller.submit(
                *method.args, *args, **{**method.keywords, **kwargs}
            )
            return future
    if isinstance(method, Client):
        return method.futures(*args, **kwargs)
    if isinstance(method, ClientGroup):
        return method._calls.submit("__call__", *args, **kwargs)
    if not callable(method):
        raise TypeError(
            "submit takes a method and its arguments, as in submit(learner.step, batch);"
            f" got {method!r}, which cannot be called"
        )
    from concurrent.futures import Future

    future = Future()
    try:
        result = method(*args, **kwargs)
        if isinstance(result, Coroutine):
            import asyncio

            result = asyncio.run(result)
        future.set_result(result)
    except Exception as error:
        future.set_exception(error)
    return future


def with_options(client: C, /, **changes: Any) -> C:
    """Return a client with other options and the same connections, for one call or many.

    Example:
        def look_up(table: lp.CourierClient[Table]) -> Row:
            return lp.with_options(table, timeout_s=2.0, idempotent=True).get("a")

    This is `table.with_options(…)`, but it keeps the type. A test may pass a local object instead of its
    client. A local object has no options, and is returned unchanged.

    Raises:
        TypeError: There is no such option; see `client/options.py`.
    """
    if isinstance(client, Client | ClientGroup):
        return cast("C", client.with_options(**changes))
    replace(Options(), **changes)  # raises for options that a client would not take
    return client
