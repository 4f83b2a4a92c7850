"""The server under attack, and the secrets that clients of its run have."""

from __future__ import annotations

import os
import secrets
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks.hostile import canary
from launchpad import courier
from launchpad.courier import keyring
from launchpad.courier.security import certificates
from launchpad.courier.security.keyring import Credentials

TRANSPORTS = ("unix", "tcp", "tls")


class Target(NamedTuple):
    """A server's address, and the secrets of its run."""

    transport: str
    address: str
    token: bytes
    credentials: Credentials | None
    pid: int = 0

    def client(self, **options: Any) -> courier.Client[Any]:
        """Return a client of the run. From here on this process has the target's credentials."""
        if self.credentials is not None:
            keyring.add("tcp:", self.token, self.credentials)
        return courier.Client(self.address, token=self.token, **options)


def new_target(transport: str, directory: str) -> Target:
    """Return a target that has not been started yet."""
    address = f"unix:{directory}/{transport}" if transport == "unix" else "tcp:127.0.0.1:0"
    credentials = certificates.make_credentials() if transport == "tls" else None
    return Target(transport, address, secrets.token_bytes(32), credentials)


def start(target: Target) -> tuple[courier.Server, Target]:
    """Start the server in this process; return it, and the target with its address."""
    if target.credentials is not None:
        keyring.add("tcp:", target.token, target.credentials)
    server = courier.Server("target", address=target.address, token=target.token)
    server.bind("echo", lambda value: value)
    server.bind("n_touched", canary.n_touched)
    server.start()
    return server, target._replace(address=server.address, pid=os.getpid())


def serve(target: Target, pipe: Connection) -> None:
    """Serve in a process of its own, until it is killed."""
    server, started = start(target)
    pipe.send(started)
    server.join()
