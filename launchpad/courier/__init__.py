"""Courier: calls between the parts of a program, over sockets of its own.

server = courier.Server("counter", address="unix:/run/user/1000/counter.sock")
server.bind("add", counter.add)
server.start()

client = courier.Client("unix:/run/user/1000/counter.sock")
client.add(1)
"""

from __future__ import annotations

# Who may call whom
from launchpad.courier import keyring

# A method that answers many calls at once
from launchpad.courier.batching import batched_handler

# The certificates of a run, for TLS
from launchpad.courier.certificates import make_credentials

# The two ends
from launchpad.courier.client import Client, close

# What `make_credentials` makes
from launchpad.courier.credentials import Credentials

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
from launchpad.courier.groups import broadcast, round_robin, shard_by

# What can be asked about a server
from launchpad.courier.inquiries import (
    health,
    incarnation,
    list_methods,
    on_restart,
    server_stats,
    stats,
)

# What a class says of its methods
from launchpad.courier.served import idempotent, priority, serves
from launchpad.courier.server import Server

# To be watched
from launchpad.courier.tracing import stop_tracing, trace

# Calls, typed by the method
from launchpad.courier.typed import submit, with_options

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
