"""grpcio over a unix socket: generic handlers with the same pickle, no generated code."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls.contenders import PROTOCOL
from benchmarks.calls.contenders.raw import Call
from benchmarks.calls.contenders.timing import CallAll, TimeCalls, all_at_once, one_by_one

METHOD = "/bench.Echo/echo"
OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


def dump(value: Any) -> bytes:
    return pickle.dumps(value, PROTOCOL)


def serve(path: str, pipe: Connection) -> None:
    import grpc

    echo = grpc.unary_unary_rpc_method_handler(lambda value, _: value, pickle.loads, dump)
    server = grpc.server(ThreadPoolExecutor(4), options=OPTIONS)
    service = grpc.method_handlers_generic_handler("bench.Echo", {"echo": echo})
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    pipe.send(f"unix:{path}")
    server.wait_for_termination()


@contextmanager
def connect(address: str) -> Iterator[Call]:
    import grpc

    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        yield channel.unary_unary(METHOD, dump, pickle.loads)


@contextmanager
def connect_one_by_one(address: str) -> Iterator[TimeCalls]:
    with connect(address) as call:
        yield one_by_one(call)


@contextmanager
def connect_all_at_once(address: str) -> Iterator[CallAll]:
    with connect(address) as call:
        yield all_at_once(call.future)  # type: ignore[attr-defined]


@contextmanager
def connect_anew(address: str) -> Iterator[Callable[[], Any]]:
    """What is measured is a new channel's first call."""
    import grpc

    def set_up() -> Any:
        # Channels to one address share their connections unless told otherwise.
        channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        channel.unary_unary(METHOD, dump, pickle.loads)(7)
        return channel

    yield set_up
