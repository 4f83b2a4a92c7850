"""Courier: calls between the parts of a program, over sockets of its own.

server = courier.Server("counter", address="unix:/run/user/1000/counter.sock")
server.bind("add", counter.add)
server.start()

client = courier.Client("unix:/run/user/1000/counter.sock")
client.add(1)

Its parts, each a package:

    protocol    bytes and what they mean      values      what calls carry
    trust       tokens and certificates       carriers    sockets of all kinds
    sharing     large buffers on one host     watching    counters, spans
    servers     what is called                clients     what calls
    streams     items one after the other     local       within one process
    batching    many calls at once            groups      many clients as one
    over_grpc   for those who speak gRPC
"""

from __future__ import annotations

# A method that answers many calls at once
from launchpad.courier.batching.handler import batched_handler

# The two ends
from launchpad.courier.clients.client import Client, close

# What can be asked about a server
from launchpad.courier.clients.inquiries import (
    health,
    incarnation,
    list_methods,
    on_restart,
    server_stats,
    stats,
)

# Calls, typed by the method
from launchpad.courier.clients.typed import submit, with_options

# What can go wrong
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

# Many clients as one
from launchpad.courier.groups.group import broadcast, round_robin, shard_by

# What a class says of its methods
from launchpad.courier.servers.served import idempotent, priority, serves
from launchpad.courier.servers.server import Server

# Who may call whom
from launchpad.courier.trust import keyring

# The certificates of a run, for TLS
from launchpad.courier.trust.certificates import make_credentials

# What `make_credentials` makes
from launchpad.courier.trust.credentials import Credentials

# To be watched
from launchpad.courier.watching.tracing import stop_tracing, trace

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
    "priority",
    "round_robin",
    "server_stats",
    "serves",
    "shard_by",
    "stats",
    "stop_tracing",
    "submit",
    "trace",
    "with_options",
]
