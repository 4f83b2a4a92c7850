"""What grpcurl and its like ask first: which services and methods are there, with which types?

The descriptors are made at run time, from the names that are bound, and made anew when those have
changed. No token is needed, as for health.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, struct_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from launchpad.courier.grpc.common import fail

_VALUE = ".google.protobuf.Value"
_MAX_ASKING = 8  # each has a thread for as long as it asks


class ReflectionService:
    """Describes the service `name` with the methods that `list_methods()` returns, and health.

    Speaks v1 too: its messages are those of v1alpha under another name.
    """

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
    """A pool with the service `name`, and the others that a server has."""
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
