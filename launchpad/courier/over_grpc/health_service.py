"""`grpc.health.v1.Health`: what Kubernetes and load balancers ask, without a token.

Both the empty name and the server's own mean the server. A watcher that does not read cannot hold
up anybody: each is told on a thread of the pool, and there are few of them at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from launchpad.courier.over_grpc.handlers import Send, later

_Answer = health_pb2.HealthCheckResponse
_MAX_WATCHERS = 64


class HealthService:
    """Answers from what `health()` says: only `serving` is SERVING.

    Args:
        health: of the server.
        name: by which it is asked for, beside the empty one.
        run: runs a function on a thread of the pool.
    """

    NAME = "grpc.health.v1.Health"

    def __init__(
        self,
        health: Callable[[], str],
        name: str,
        run: Callable[[Callable[[], object]], object],
    ) -> None:
        self._health = health
        self._names = ("", name)
        self._run = run
        self._watchers: set[_Watcher] = set()

    def find(self, path: str, _: Any) -> grpc.RpcMethodHandler | None:
        if path == f"/{self.NAME}/Check":
            return grpc.unary_unary_rpc_method_handler(self._check, _parse, _write)
        if path == f"/{self.NAME}/Watch":
            return later(self._watch, _parse, _write)
        return None

    def tell(self) -> None:
        """Something has changed: tells those who watch."""
        for watcher in tuple(self._watchers):
            self._run(watcher.tell)

    def end_watches(self) -> None:
        """Tells all that the server is not serving, and nothing after that."""
        for watcher in tuple(self._watchers):
            self._watchers.discard(watcher)
            watcher.end()

    def _check(self, request: Any, context: grpc.ServicerContext) -> Any:
        if request.service not in self._names:
            context.set_code(grpc.StatusCode.NOT_FOUND)
            context.set_details(f"there is no service {request.service!r} here")
            return _Answer()
        return _Answer(status=self._status(request.service))

    def _watch(self, request: Any, context: grpc.ServicerContext, send: Send) -> None:
        if len(self._watchers) >= _MAX_WATCHERS:
            context.set_code(grpc.StatusCode.RESOURCE_EXHAUSTED)
            context.set_details(f"{_MAX_WATCHERS} watch already")
            send(None)
            return
        watcher = _Watcher(lambda: self._status(request.service), send)
        self._watchers.add(watcher)
        if not context.add_callback(lambda: self._watchers.discard(watcher)):
            self._watchers.discard(watcher)
        watcher.tell()

    def _status(self, name: str) -> Any:
        if name not in self._names:
            return _Answer.SERVICE_UNKNOWN
        return _Answer.SERVING if self._health() == "serving" else _Answer.NOT_SERVING


class _Watcher:
    """Hears of every change once, in order."""

    def __init__(self, status: Callable[[], Any], send: Send) -> None:
        self._status = status
        self._send = send
        self._lock = threading.Lock()
        self._last: Any = None

    def tell(self) -> None:
        with self._lock:
            status = self._status()
            if status != self._last:
                self._last = status
                self._send(_Answer(status=status))

    def end(self) -> None:
        self._send(None)


def _parse(data: bytes) -> Any:
    return health_pb2.HealthCheckRequest.FromString(data)


def _write(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
