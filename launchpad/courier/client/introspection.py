"""What can be asked about a client's server, beyond its own methods.

Functions, not methods of the client: a server may have methods of these names.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from launchpad.courier.protocol import handshake
from launchpad.courier.protocol.framing import HEALTH, LIST_METHODS, STATS

if TYPE_CHECKING:
    from launchpad.courier.client.channel import Channel
    from launchpad.courier.telemetry.call_stats import ClientStats, ServerStats


def list_methods(client: Any) -> list[str]:
    """The names that the client's server serves, sorted. A call like any other."""
    names: list[str] = client._channel.call(LIST_METHODS)
    return names


def health(client: Any) -> str:
    """`serving`, `not serving` or `draining`. A call like any other, which a draining server answers."""
    state: str = client._channel.call(HEALTH)
    return state


def incarnation(client: Any) -> str:
    """Which of the servers that ever had this address answers: another after each restart.

    Asks the server, if the client has not talked to it yet.
    """
    channel: Channel = client._channel
    if channel.peer.server_hello is None:
        channel.call(HEALTH)
    assert channel.peer.server_hello is not None
    return channel.peer.server_hello.incarnation.hex()


def on_restart(client: Any, callback: Callable[[], object]) -> None:
    """Calls `callback()` whenever the client finds that its server has been started anew.

    Example:
        courier.on_restart(table, lambda: table.load(snapshot))     # its state was lost

    In the thread whose call finds it, before that call is sent. The callback may call the server,
    but must not wait for futures of this client. What it raises, the call raises.
    """
    client._channel.peer.restart_callbacks.append(callback)


def server_stats(client: Any) -> ServerStats:
    """What the client's server has counted of its calls, from all its clients. A call like any other."""
    found: ServerStats = client._channel.call(STATS)
    return found


def stats(client: Any) -> ClientStats:
    """What the client has counted of its calls: `client.stats()`, for one typed as what it calls."""
    from launchpad.courier.telemetry import call_stats

    channel: Channel = client._channel
    peer = channel.peer
    return call_stats.ClientStats(
        name=handshake.name(),
        server=peer.server,
        address=peer.locate(),
        incarnation=peer.server_hello.incarnation.hex() if peer.server_hello is not None else "",
        uptime_s=time.monotonic() - peer.began,
        connections=channel.n_connections,
        methods=call_stats.read(channel.counts),
    )
