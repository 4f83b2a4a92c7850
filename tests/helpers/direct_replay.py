"""A replay server that is called without a socket."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from launchpad import replay
from launchpad.replay.client import ReplayClient
from launchpad.replay.server import ReplayServer


class Direct:
    """A replay server that a client calls without a socket. It counts the steps that come."""

    def __init__(self) -> None:
        self.restart()
        self.steps = 0

    def restart(self) -> None:
        self.server = ReplayServer([replay.Table.queue("t", 10_000)])

    def with_options(self, **options: object) -> Direct:
        return self

    @property
    def futures(self) -> Any:
        return SimpleNamespace(insert=self.insert_soon, forget=self.server.forget)

    def insert_soon(self, *arguments: Any) -> Future[None]:
        future: Future[None] = Future()
        try:
            future.set_result(self.insert(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def insert(self, name: bytes, number: int, steps: Any, *arguments: Any) -> Any:
        self.steps += sum(stop - first for first, stop, _ in steps)
        copied = [(first, stop, [bytes(b) for b in columns]) for first, stop, columns in steps]
        return self.server.insert(name, number, copied, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.server, name)


def items(client: ReplayClient) -> list[Any]:
    """Return all items, in their order."""
    n = client.info()["t"].size
    return [each.data for each in client.sample("t", n)] if n else []
