"""grpcio over a unix socket: generic handlers with the same pickle, no generated code."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls.contenders.contender import PROTOCOL, Client, Contender

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
def connect(address: str) -> Iterator[Client]:
    import grpc

    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        call = channel.unary_unary(METHOD, dump, pickle.loads)
        yield Client(call, call.future)


GRPCIO = Contender("grpcio", serve, connect, "grpc")
