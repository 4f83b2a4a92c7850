"""What can be asked about a client's server, beyond its own methods.

Functions, not methods of the client: a server may have methods of these names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from launchpad.courier.servers.methods import HEALTH, LIST_METHODS, STATS

if TYPE_CHECKING:
    from launchpad.courier.clients.client import Channel
    from launchpad.courier.watching.call_stats import ClientStats, ServerStats


def list_methods(client: Any) -> list[str]:
    """The names that the client's server serves, sorted. A call like any other."""
    names: list[str] = _channel_of(client).call(LIST_METHODS)
    return names


def health(client: Any) -> str:
    """`serving`, `not serving` or `draining`. A call like any other, which a draining server answers."""
    state: str = _channel_of(client).call(HEALTH)
    return state


def incarnation(client: Any) -> str:
    """Which of the servers that ever had this address answers: another after each restart.

    Asks the server, if the client has not talked to it yet.
    """
    channel = _channel_of(client)
    if channel.peer.welcome is None:
        channel.call(HEALTH)
    assert channel.peer.welcome is not None
    return channel.peer.welcome.incarnation.hex()


def on_restart(client: Any, callback: Callable[[], object]) -> None:
    """Calls `callback()` whenever the client finds that its server has been started anew.

    Example:
        courier.on_restart(table, lambda: table.load(snapshot))     # its state was lost

    In the thread whose call finds it, before that call is sent. The callback may call the server,
    but must not wait for futures of this client. What it raises, the call raises.
    """
    _channel_of(client).peer.restart_callbacks.append(callback)


def server_stats(client: Any) -> ServerStats:
    """What the client's server has counted of its calls, from all its clients. A call like any other."""
    found: ServerStats = _channel_of(client).call(STATS)
    return found


def stats(client: Any) -> ClientStats:
    """What the client has counted of its calls: `client.stats()`, for one typed as what it calls."""
    from launchpad.courier.watching import call_stats

    return call_stats.of_client(_channel_of(client))


def _channel_of(client: Any) -> Channel:
    channel: Channel = client._channel
    return channel
