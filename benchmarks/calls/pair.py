"""A contender's two processes."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls.contender import Contender
from benchmarks.calls.placement import Placement
from benchmarks.calls.worker import Worker


class Failed(Exception):
    """A contender did not bring its calls to an end."""


class Pair:
    """A server and its client, new, and after `connect` connected; killed when the stack is unwound."""

    def __init__(self, stack: ExitStack, contender: Contender, path: str) -> None:
        self.contender = contender
        self.server = Worker(stack, contender.serve, path)
        self.client = Worker(stack, be_client, contender.connect)

    def connect(self) -> None:
        self.client.say(self.server.hear())
        self.client.hear()

    def measure(self, measure: Callable[..., Any], *args: Any) -> Any:
        """What `measure(callable, *args)` finds in the client; raises Failed when a call does."""
        found = self.client.ask((measure, args))
        if isinstance(found, Failed):
            raise found
        return found

    def pin(self, placement: Placement) -> None:
        self.client.pin(placement.client)
        self.server.pin(placement.server)


def be_client(connect: Callable[[Any], Any], pipe: Connection) -> None:
    """Measures what it is asked to, until it is killed."""
    with connect(pipe.recv()) as call:
        pipe.send(True)
        while True:
            measure, args = pipe.recv()
            try:
                pipe.send(measure(call, *args))
            except Exception as error:
                traceback.print_exc()
                pipe.send(Failed(" ".join(repr(error).split())[:200]))
