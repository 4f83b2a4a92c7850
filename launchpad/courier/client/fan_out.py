"""Calls to several clients, side by side.

args ──split──▶ a request for each client ──▶ their answers ──join──▶ one
                                                 └─ some fail: the first error, with a note of all
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from launchpad.courier.codec.iterators import is_stream

if TYPE_CHECKING:
    from concurrent.futures import Future

Join = Callable[[list[Any]], Any]


class Request(NamedTuple):
    """The request for one client."""

    client: int  # the client's index in the group
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class FanOut(ABC):
    """A call of a group, made as several calls of its clients.

    There are four ways to make the call: `call` waits, `submit` returns one future, `begin` returns a future
    for each client, and `ask` returns an awaitable. All four raise an error at once if the arguments cannot
    be split.
    """

    name = ""
    answers_with_list = True
    joins_at_once = True  # the thread that reads the last answer joins the answers

    def __init__(self, clients: tuple[Any, ...]) -> None:
        self.clients = clients

    def refuse_streams(self, values: Iterable[Any]) -> None:
        """Raise TypeError if a value that all clients get is a stream, which can be read only once."""
        for value in values:
            if is_stream(value):
                raise TypeError(
                    f"a {self.name} gives {value!r:.80} to several clients, and each of its items would"
                    " reach only one of them: it can be read once. Give list(it), or an iterator for each"
                    " client by lp.scatter(clients) and lp.parts."
                )

    @abstractmethod
    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Request], Join]:
        """Return a request for each client, and the function that joins their answers into one."""

    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        requests, join = self.split(args, kwargs)
        futures = self._begin(method, requests)
        try:
            for future in futures:
                future.exception()
        except BaseException:  # interrupted: no thread waits for these futures any more
            for future in futures:
                future.cancel()
            raise
        return join(self._gather(futures, [request.client for request in requests]))

    def submit(self, method: str, /, *args: Any, **kwargs: Any) -> Future[Any]:
        from launchpad.courier.client import callbacks
        from launchpad.courier.client.future import CourierFuture

        joined_future = CourierFuture()
        joined_future.set_running_or_notify_cancel()
        requests, join = self.split(args, kwargs)
        futures = self._begin(method, requests)
        indexes = [request.client for request in requests]
        n_done = itertools.count(1)

        def complete(last: Future[Any]) -> None:
            if next(n_done) == len(futures):
                if self.joins_at_once:
                    finish(last)
                else:  # joining may take long, and this thread reads answers
                    callbacks.submit(finish, last)

        def finish(_: Future[Any]) -> None:
            try:
                joined_future.set_result(join(self._gather(futures, indexes)))
            except BaseException as error:
                joined_future.set_exception(error)

        for future in futures:
            future.add_done_callback(complete)
        return joined_future

    def begin(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        requests, _ = self.split(args, kwargs)
        return self._begin(method, requests)

    def ask(self, method: str, /, *args: Any, **kwargs: Any) -> Awaitable[Any]:
        requests, join = self.split(args, kwargs)
        return self._ask(method, requests, join)

    async def _ask(self, method: str, requests: list[Request], join: Join) -> Any:
        import asyncio

        calls = [getattr(self.clients[i].aio, method)(*args, **kw) for i, args, kw in requests]
        results = await asyncio.gather(*calls, return_exceptions=True)
        self._check(results, [request.client for request in requests])
        return join(results)

    def _begin(self, method: str, requests: list[Request]) -> list[Future[Any]]:
        """Return a future for each request.

        If a request cannot be made, its future has the error, so that the other answers are not lost.
        """
        from concurrent.futures import Future

        futures: list[Future[Any]] = []
        for i, args, kwargs in requests:
            try:
                futures.append(getattr(self.clients[i].futures, method)(*args, **kwargs))
            except Exception as error:
                futures.append(Future())
                futures[-1].set_exception(error)
            except BaseException:  # interrupted: no thread will wait for these futures
                for future in futures:
                    future.cancel()
                raise
        return futures

    def _gather(self, futures: list[Future[Any]], indexes: Sequence[int]) -> list[Any]:
        """Return the results of futures that are done, or raise the first error."""
        self._check([future.exception() for future in futures], indexes)
        return [future.result() for future in futures]

    def _check(self, outcomes: list[Any], indexes: Sequence[int]) -> None:
        """Raise the first error among the outcomes, if any, with a note that lists all of them."""
        errors = [
            (index, outcome)
            for index, outcome in zip(indexes, outcomes, strict=True)
            if isinstance(outcome, BaseException)
        ]
        if not errors:
            return
        lines = [f"{len(errors)} of {len(indexes)} clients of this {self.name} failed:"]
        for index, error in errors:
            text = f"{type(error).__name__}: {error}"
            if len(text) > 200:
                text = f"{text[:199]}…"
            lines.append(f"  {index}: {self.clients[index]!r}: {text}")
        first = errors[0][1]
        first.add_note("\n".join(lines))
        raise first
