"""The server that strangers come to, and what those know who belong to its run."""

from __future__ import annotations

import os
import secrets
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.hostile import canary
from launchpad import courier
from launchpad.courier import keyring
from launchpad.courier.security import certificates
from launchpad.courier.security.keyring import Credentials

CARRIERS = ("unix", "tcp", "tls")


class Target(NamedTuple):
    """Where a server is, and what opens it."""

    carrier: str
    address: str
    token: bytes
    credentials: Credentials | None
    pid: int = 0

    def client(self, **options: Any) -> courier.Client[Any]:
        """One that belongs. From here on this process has the target's credentials."""
        if self.credentials is not None:
            keyring.add("tcp:", self.token, self.credentials)
        return courier.Client(self.address, token=self.token, **options)


def new_target(carrier: str, directory: str) -> Target:
    """Not started yet."""
    address = f"unix:{directory}/{carrier}" if carrier == "unix" else "tcp:127.0.0.1:0"
    credentials = certificates.make_credentials() if carrier == "tls" else None
    return Target(carrier, address, secrets.token_bytes(32), credentials)


def start(target: Target) -> tuple[courier.Server, Target]:
    """In this process; where it is has been filled in."""
    if target.credentials is not None:
        keyring.add("tcp:", target.token, target.credentials)
    server = courier.Server("target", address=target.address, token=target.token)
    server.bind("echo", lambda value: value)
    server.bind("n_touched", canary.n_touched)
    server.start()
    return server, target._replace(address=server.address, pid=os.getpid())


def serve(target: Target, pipe: Connection) -> None:
    """In a process of its own, until it is killed."""
    server, started = start(target)
    pipe.send(started)
    server.join()


class Footprint(NamedTuple):
    """What a process holds of the system."""

    descriptors: int
    threads: int
    mib: float


def footprint(pid: int) -> Footprint:
    here = Path(f"/proc/{pid}")
    pages = int((here / "statm").read_text().split()[1])
    return Footprint(
        len(list((here / "fd").iterdir())),
        len(list((here / "task").iterdir())),
        pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
    )
