"""The code of workers on different nodes, in a module of its own, so that they don't import pytest."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

import launchpad as lp
from tests import nodes


class Peer(nodes.Counter):
    """A server that knows others, and returns their addresses."""

    def __init__(self, others: list[Any]) -> None:
        super().__init__()
        self._others = others

    def addresses(self) -> list[str]:
        for peer in self._others:
            peer.add()
        return [peer.address for peer in self._others]


class Hard(nodes.Thrower):
    """Raises, returns and streams what is hard to send; may be made poor in descriptors."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def count(self) -> Iterator[int]:
        try:
            yield from itertools.count()
        finally:
            self._closed.set()

    def was_closed(self, within_s: float) -> bool:
        return self._closed.wait(within_s)

    def echo(self, value: Any) -> Any:
        return value

    def peak_bytes(self) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

    def allow_descriptors(self, more: int) -> None:
        most = len(os.listdir("/dev/fd")) + more
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (most, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )

    def has_run_out(self) -> bool:
        try:
            os.close(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            return True
        return False


def meet_hard_cases(server: Any) -> None:
    """Fails if any of them ends otherwise than it should."""
    assert server.ping() == "pong"
    assert server.address.startswith("tcp:"), server.address
    _expect(RecursionError, server.recurse)
    assert "lock" in _expect(lp.courier.RemoteError, server.return_a_lock).type_name
    assert "in raise_unpicklable" in str(
        _expect(lp.courier.RemoteError, server.raise_unpicklable).traceback
    )
    assert "this and that" in str(_expect(nodes.TwoArguments, server.raise_two_arguments))
    assert len(str(_expect(ValueError, server.raise_long))) == 200_003
    with contextlib.closing(server.count()) as stream:
        assert [next(stream) for _ in range(3)] == [0, 1, 2]
    assert server.was_closed(within_s=5.0)
    print("met all hard cases")


def send_much(server: Any, size: int) -> None:
    """Send an array there and back. Print the growth of both sides' memory, as multiples of its size."""
    server.echo(np.ones(1 << 20, np.uint8))
    ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    theirs = server.peak_bytes()
    array = np.full(size, 7, np.uint8)
    returned = server.echo(array)
    assert returned.nbytes == size
    assert returned[0] == returned[-1] == 7
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - ours
    print("grown", grown / size, (server.peak_bytes() - theirs) / size)


def _expect(kind: type[BaseException], call: Any) -> Any:
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")
