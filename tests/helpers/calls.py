"""The ways to make a call, and kinds of methods, for tests of what holds for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from launchpad import courier

DEADLINE_S = 20.0


def wait(client: courier.Client[Any], method: str, *args: Any) -> Any:
    return getattr(client, method)(*args)


def with_a_deadline(client: courier.Client[Any], method: str, *args: Any) -> Any:
    return getattr(client.with_options(timeout_s=DEADLINE_S), method)(*args)


def as_a_future(client: courier.Client[Any], method: str, *args: Any) -> Any:
    return getattr(client.futures, method)(*args).result(DEADLINE_S)


def awaited(client: courier.Client[Any], method: str, *args: Any) -> Any:
    async def main() -> Any:
        return await getattr(client.aio, method)(*args)

    return asyncio.run(main())


KINDS = [wait, with_a_deadline, as_a_future, awaited]


def as_async(generator: Callable[..., Iterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
    """Return an async generator of the same items."""

    async def items(*args: Any) -> AsyncIterator[Any]:
        for item in generator(*args):
            await asyncio.sleep(0)
            yield item

    return items
