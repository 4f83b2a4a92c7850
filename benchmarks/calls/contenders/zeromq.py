"""ZeroMQ over ipc: req/rep for one call at a time, a dealer and a router for many."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.calls.contenders.contender import PROTOCOL, Client, Contender


def serve_rep(path: str, pipe: Connection) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.REP) as sock:
        sock.bind(f"ipc://{path}")
        pipe.send(f"ipc://{path}")
        while True:
            sock.send(pickle.dumps(pickle.loads(sock.recv()), PROTOCOL))


def serve_router(path: str, pipe: Connection) -> None:
    import zmq

    with zmq.Context() as context, context.socket(zmq.ROUTER) as sock:
        sock.set_hwm(0)
        sock.bind(f"ipc://{path}")
        pipe.send(f"ipc://{path}")
        while True:
            client, call_id, body = sock.recv_multipart()
            answer = pickle.dumps(pickle.loads(body), PROTOCOL)
            sock.send_multipart((client, call_id, answer))


@contextmanager
def connect(address: str) -> Iterator[Client]:
    """Give a client that makes a socket for every thread, because ZeroMQ's sockets are not thread-safe."""
    import zmq

    context = zmq.Context()
    own = threading.local()

    def call(value: Any) -> Any:
        if not hasattr(own, "sock"):
            own.sock = context.socket(zmq.REQ)
            own.sock.connect(address)
        own.sock.send(pickle.dumps(value, PROTOCOL))
        return pickle.loads(own.sock.recv())

    yield Client(call)


@contextmanager
def connect_dealer(address: str) -> Iterator[Client]:
    import zmq

    with zmq.Context() as context, context.socket(zmq.DEALER) as sock:
        sock.set_hwm(0)
        sock.connect(address)

        def call_all(n: int) -> None:
            waiting = set(range(n))
            for i in range(n):
                sock.send_multipart((i.to_bytes(8, "little"), pickle.dumps(i, PROTOCOL)))
            while waiting:
                call_id, body = sock.recv_multipart()
                i = int.from_bytes(call_id, "little")
                assert pickle.loads(body) == i
                waiting.remove(i)

        yield Client(lambda value: call_all(1), call_all=call_all)


def serve_arrays(path: str, pipe: Connection) -> None:
    """Send back each message without copying it."""
    import zmq

    with zmq.Context() as context, context.socket(zmq.REP) as sock:
        sock.bind(f"ipc://{path}")
        pipe.send(f"ipc://{path}")
        while True:
            sock.send(sock.recv(copy=False), copy=False)


@contextmanager
def connect_arrays(address: str) -> Iterator[Client]:
    """Give a client that sends and receives arrays without a copy. The answer is read-only."""
    import numpy as np
    import zmq

    with zmq.Context() as context, context.socket(zmq.REQ) as sock:
        sock.connect(address)

        def echo(array: Any) -> Any:
            sock.send(array, copy=False)
            return np.frombuffer(sock.recv(copy=False).buffer, array.dtype)

        yield Client(echo)


REQ_REP = Contender("zmq req/rep", serve_rep, connect, "zmq")
DEALER = Contender("zmq dealer", serve_router, connect_dealer, "zmq")
ARRAYS = Contender("zmq", serve_arrays, connect_arrays, "zmq")
