"""The check that each host of a launch reaches each other one, before a worker is started.

Without it, a firewall between two hosts shows only when a worker there makes its first call, minutes later.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from launchpad.errors import LaunchError
from launchpad.launch.backends.remote.node_connection import NodeConnection, NodeGone

CONNECT_S = 2.0
"""How long a host may take to connect with another one."""

_ANSWER_S = 30.0

Target = tuple[str, int]
"""An IP address and a port."""


class OpenPort:
    """A port at which the other hosts try to reach this one."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None

    async def open(self, ip: str) -> int:
        """Listen at an address of this host, and return the port."""

        def on_connection(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        self._server = await asyncio.start_server(on_connection, ip, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None


async def unreachable(targets: Mapping[str, Target]) -> dict[str, str]:
    """Return host → why this host can't connect with it, for those that it can't connect with."""

    async def reason(target: Target) -> str:
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(*target), CONNECT_S)
        except TimeoutError:
            return f"no answer within {CONNECT_S:g} s"
        except OSError as error:
            return os.strerror(error.errno) if error.errno else str(error)
        writer.close()
        return ""

    reasons = await asyncio.gather(*(reason(target) for target in targets.values()))
    return {host: why for host, why in zip(targets, reasons, strict=True) if why}


def check_all_pairs(connections: Mapping[str, NodeConnection]) -> list[str]:
    """Return a sentence for each pair of hosts of which one can't reach the other. Waits for the hosts.

    Raises:
        LaunchError: a host didn't answer, or can't listen; the text names it.
    """
    opening = {name: node.call("", "open_port") for name, node in connections.items()}
    targets: dict[str, Target] = {}
    for name, future in opening.items():
        ip = connections[name].ready.where.ip
        hint = f"the others cannot be given {ip} as its address: see hosts={{…: {{'address': …}}}}"
        targets[name] = (ip, _answer_of(name, future, hint))
    trying = {
        name: node.call("", "unreachable", {n: t for n, t in targets.items() if n != name})
        for name, node in connections.items()
    }
    texts = [
        f"{name} cannot reach {other} at {targets[other][0]}: {why}"
        for name, future in trying.items()
        for other, why in _answer_of(name, future, "it cannot look for the others").items()
    ]
    for node in connections.values():
        node.post("", "close_port")
    return texts


def _answer_of(name: str, future: Future[Any], failure: str) -> Any:
    """Return a host's answer, or raise LaunchError with the host's name."""
    try:
        return future.result(_ANSWER_S)
    except TimeoutError:
        raise LaunchError(f"{name} has not answered for {_ANSWER_S:g} s") from None
    except NodeGone as gone:
        raise LaunchError(f"{name} was lost while the launch began: {gone}") from gone
    except LaunchError as error:
        raise LaunchError(f"{name}: {failure}: {error}") from error


def remedy(texts: Sequence[str]) -> str:
    """Return the advice for a user whose hosts can't reach each other."""
    return (
        f"{'; '.join(texts)}. Workers call each other at any TCP port: allow that between the hosts, or give"
        " the address at which the others reach a host, as in hosts={'h2': {'address': '10.0.0.2'}}"
    )
