"""The services that every gRPC server offers to tools, without a token: health checks and reflection.

Kubernetes and load balancers call `grpc.health.v1.Health`. Both the empty name and the server's own name
mean the server. A watcher that does not read blocks nothing else, because a thread of the pool notifies each
watcher, and the number of watchers is limited. `grpc_health.v1.health.HealthServicer` isn't used, because it
sends while it holds the lock that gRPC's own thread takes when a watcher leaves. With that class, a watcher
that leaves while another is being notified would stop the whole server.

grpcurl and similar tools first ask `grpc.reflection` for the services, their methods and types. The
descriptors are made at run time, for each such call, from the names that are bound.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, struct_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from launchpad.courier.grpc.common import Send, fail, unary_handler

_Answer = health_pb2.HealthCheckResponse
_MAX_WATCHERS = 64
_VALUE = ".google.protobuf.Value"
_MAX_ASKING = 8  # callers of reflection at once; each occupies a thread until it is done


class HealthService:
    """The health service. It answers with the server's `health()`: only `serving` is SERVING."""

    NAME = "grpc.health.v1.Health"

    def __init__(
        self,
        health: Callable[[], str],
        name: str,
        run: Callable[[Callable[[], object]], object],
    ) -> None:
        self._health = health
        self._names = ("", name)  # the names that callers may ask for
        self._run = run  # runs a function on a thread of the pool
        #: For each watcher, the function that notifies it, and the function that sends to it.
        self.watchers: dict[Callable[[], None], Send] = {}

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
        for notify in tuple(self.watchers):
            self._run(notify)

    def _check(self, request: Any, context: grpc.ServicerContext) -> Any:
        if request.service not in self._names:
            fail(
                context, grpc.StatusCode.NOT_FOUND, f"there is no service {request.service!r} here"
            )
        return _Answer(status=self._status(request.service))

    def _watch(self, request: Any, context: grpc.ServicerContext, send: Send) -> None:
        if len(self.watchers) >= _MAX_WATCHERS:
            fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_MAX_WATCHERS} watch already")
            send(None)
            return
        # This lock is held to notify, because several threads of the pool may notify one watcher at the same
        # time. So the last status that is sent is the current one.
        lock = threading.Lock()
        last = None

        def notify() -> None:  # sends every change once, in order
            nonlocal last
            with lock:
                status = self._status(request.service)
                if status != last:
                    last = status
                    send(_Answer(status=status))

        self.watchers[notify] = send
        if not context.add_callback(lambda: self.watchers.pop(notify, None)):
            self.watchers.pop(notify, None)
        notify()

    def _status(self, name: str) -> Any:
        if name not in self._names:
            return _Answer.SERVICE_UNKNOWN
        return _Answer.SERVING if self._health() == "serving" else _Answer.NOT_SERVING


class ReflectionService:
    """The reflection service. It describes the service `name`, with `list_methods()`, and health checks."""

    # The messages of v1 are those of v1alpha under another name, so both are served alike.
    NAMES = tuple(f"grpc.reflection.{v}.ServerReflection" for v in ("v1", "v1alpha"))

    def __init__(self, name: str, list_methods: Callable[[], list[str]]) -> None:
        self._name = name
        self._list_methods = list_methods
        self._asking = threading.Semaphore(_MAX_ASKING)

    def find(self, path: str, _: Any) -> grpc.RpcMethodHandler | None:
        if path not in [f"/{name}/ServerReflectionInfo" for name in self.NAMES]:
            return None
        return grpc.stream_stream_rpc_method_handler(
            self._answer,
            reflection_pb2.ServerReflectionRequest.FromString,
            reflection_pb2.ServerReflectionResponse.SerializeToString,
        )

    def _answer(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        if not self._asking.acquire(blocking=False):
            fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_MAX_ASKING} ask already")
            return
        try:
            pool = describe(self._name, self._list_methods())
            names = (self._name, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
            servicer = reflection.ReflectionServicer((*names, *self.NAMES[1:]), pool)
            yield from servicer.ServerReflectionInfo(requests, context)
        finally:
            self._asking.release()


def describe(name: str, methods: list[str]) -> Any:
    """Return a pool with the service `name`, and the other services that a server has."""
    pool = descriptor_pool.DescriptorPool()
    for file in (struct_pb2, health_pb2, reflection_pb2):
        pool.AddSerializedFile(file.DESCRIPTOR.serialized_pb)
    package, _, service = name.rpartition(".")
    proto = descriptor_pb2.FileDescriptorProto(
        name=f"launchpad/{service}.proto",
        package=package,
        dependency=[struct_pb2.DESCRIPTOR.name],
        syntax="proto3",
    )
    described = proto.service.add(name=service)
    for method in methods:
        if method.isascii() and method.isidentifier():
            described.method.add(name=method, input_type=_VALUE, output_type=_VALUE)
    pool.Add(proto)
    return pool
