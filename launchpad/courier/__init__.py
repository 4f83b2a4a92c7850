"""Remote calls between the parts of a program, over sockets.

Example:
    server = lp.courier.Server("counter", address="unix:/run/user/1000/counter.sock")
    server.bind("add", counter.add)
    server.start()

    client = lp.courier.Client("unix:/run/user/1000/counter.sock")
    client.add(1)

Each part is a package:

    protocol    messages and the handshake    codec       values as bytes and buffers
    security    tokens and certificates       transport   sockets of all kinds
    shm         large buffers on one host     telemetry   counters, statistics, spans
    server      the side that is called       client      the side that calls
    streams     items one after the other     batching    many calls answered at once
    grpc        calls over gRPC
"""

from __future__ import annotations

# A method that answers many calls at once
from launchpad.courier.batching.decorator import batched_handler

# The client, and questions about a server
from launchpad.courier.client.client import (
    Client,
    close,
    health,
    incarnation,
    list_methods,
    on_restart,
    server_stats,
    stats,
)

# Many clients as one
from launchpad.courier.client.group import broadcast, round_robin, shard_by
from launchpad.courier.client.partition import HashPartition, RangePartition
from launchpad.courier.client.scatter import parts, scatter
from launchpad.courier.client.sharded import keys, sharded

# Calls, typed by the method
from launchpad.courier.client.typed import submit, with_options

# The errors that courier raises
from launchpad.courier.errors import (
    CourierError,
    DeadlineExceeded,
    MessageTooLarge,
    MethodNotFound,
    NotSent,
    OutcomeUnknown,
    ProtocolError,
    Refused,
    RemoteError,
    RemoteTraceback,
    StreamBroken,
    WorkerFailed,
)

# Tokens and credentials: they decide who may call whom
from launchpad.courier.security import keyring

# The certificates of a run, for TLS
from launchpad.courier.security.certificates import make_credentials
from launchpad.courier.security.keyring import Credentials

# Decorators that say how a class's methods are served, and the server
from launchpad.courier.server.decorators import idempotent, one_at_a_time, priority, serves
from launchpad.courier.server.server import Server

# Which arguments and results are streams
from launchpad.courier.streams.declared import stream

# Spans of OpenTelemetry
from launchpad.courier.telemetry.tracing import stop_tracing, trace

__all__ = [
    "Client",
    "CourierError",
    "Credentials",
    "DeadlineExceeded",
    "MessageTooLarge",
    "MethodNotFound",
    "NotSent",
    "OutcomeUnknown",
    "ProtocolError",
    "Refused",
    "RemoteError",
    "RemoteTraceback",
    "Server",
    "StreamBroken",
    "WorkerFailed",
    "batched_handler",
    "broadcast",
    "close",
    "health",
    "idempotent",
    "incarnation",
    "keyring",
    "list_methods",
    "make_credentials",
    "on_restart",
    "one_at_a_time",
    "priority",
    "round_robin",
    "server_stats",
    "serves",
    "shard_by",
    "stats",
    "stop_tracing",
    "stream",
    "submit",
    "trace",
    "with_options",
]
