"""`grpc.health.v1.Health`: what Kubernetes and load balancers ask, without a token.

Both the empty name and the server's own mean the server. A watcher that does not read blocks nothing
else: each is notified on a thread of the pool, and there are few of them at a time.

`grpc_health.v1.health.HealthServicer` is not used: it sends under the lock that gRPC's own thread takes
when a watcher leaves, so that a watcher that leaves while another is notified stops the whole server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from launchpad.courier.grpc.common import Send, fail, unary_handler

_Answer = health_pb2.HealthCheckResponse
_MAX_WATCHERS = 64


class HealthService:
    """Answers with what `health()` returns: only `serving` is SERVING.

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
        self._watchers: set[_HealthWatcher] = set()

    def find(self, path: str, _: Any) -> grpc.RpcMethodHandler | None:
        parse = health_pb2.HealthCheckRequest.FromString
        if path == f"/{self.NAME}/Check":
            return grpc.unary_unary_rpc_method_handler(
                self._check, parse, _Answer.SerializeToString
            )
        if path == f"/{self.NAME}/Watch":
            return unary_handler(self._watch, parse, _Answer.SerializeToString)
        return None

    def notify(self) -> None:
        """Notifies the watchers: something has changed."""
        for watcher in tuple(self._watchers):
            self._run(watcher.notify)

    def end_watches(self) -> None:
        """Ends them all: the server takes no more calls."""
        for watcher in tuple(self._watchers):
            self._watchers.discard(watcher)
            watcher.send(None)

    def _check(self, request: Any, context: grpc.ServicerContext) -> Any:
        if request.service not in self._names:
            fail(
                context, grpc.StatusCode.NOT_FOUND, f"there is no service {request.service!r} here"
            )
        return _Answer(status=self._status(request.service))

    def _watch(self, request: Any, context: grpc.ServicerContext, send: Send) -> None:
        if len(self._watchers) >= _MAX_WATCHERS:
            fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_MAX_WATCHERS} watch already")
            send(None)
            return
        watcher = _HealthWatcher(lambda: self._status(request.service), send)
        self._watchers.add(watcher)
        if not context.add_callback(lambda: self._watchers.discard(watcher)):
            self._watchers.discard(watcher)
        watcher.notify()

    def _status(self, name: str) -> Any:
        if name not in self._names:
            return _Answer.SERVICE_UNKNOWN
        return _Answer.SERVING if self._health() == "serving" else _Answer.NOT_SERVING


class _HealthWatcher:
    """Gets every change once, in order."""

    def __init__(self, status: Callable[[], Any], send: Send) -> None:
        self.send = send
        self._status = status
        self._lock = threading.Lock()
        self._last: Any = None

    def notify(self) -> None:
        with self._lock:
            if (status := self._status()) != self._last:
                self._last = status
                self.send(_Answer(status=status))
