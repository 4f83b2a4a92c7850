"""The launcher's server for nodes that join it: the cluster starts a process on each node, which connects.

    launcher ◀── join(key, where it is) ──────────── node
             ── parts of calls, as its items ──────▶ node host ── worker hosts ══ workers
             ◀── answer(key, part of an answer) ─────┘

The node connects to the launcher, never the other way round, because nodes reach the launcher in every
cluster. The stream is the lifeline of both ends: each notices when the other is gone. The node's end is in
`joined_node`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable
from typing import Any

import portpicker

from launchpad.courier import Server, keyring
from launchpad.errors import LaunchError
from launchpad.launch.backends.launcher_info import RunSecrets, versions
from launchpad.launch.backends.remote.joined_node import LauncherAddress
from launchpad.launch.backends.remote.node_connection import NodeConnection, NodeGone, NodeReady
from launchpad.launch.backends.remote.parts import Part


class JoinServer:
    """A server that nodes join. It serves from the start, so the constructor's caller must be ready for that.

    Args:
        ip: The address of this process that nodes reach.
        keys: The secrets of the run, which nodes need to join.
        on_join: Called with the key of a node that joins, and its connection. It returns False to refuse the
            node.
        on_gone: Called with the same when that node is gone.

    Attributes:
        address: What a node's process is given, so that it finds the server.
    """

    def __init__(
        self,
        ip: str,
        keys: RunSecrets,
        on_join: Callable[[Any, NodeConnection], bool],
        on_gone: Callable[[Any, NodeConnection], object],
    ) -> None:
        host = f"[{ip}]" if ":" in ip else ip
        where = f"tcp:{host}:{portpicker.pick_unused_port()}"
        self.address = LauncherAddress(where, keys, versions())
        self._on_join = on_join
        self._on_gone = on_gone
        self._joined: dict[Hashable, NodeConnection] = {}
        keyring.add(where, keys.token, keys.credentials)
        self._server = Server("launcher", address=where)
        self._server.bind("join", self._join)
        self._server.bind("answer", self._answer)
        try:
            self._server.start()
        except BaseException:
            keyring.remove(where)
            raise

    def close(self) -> None:
        """Serve no longer. Nodes that have not ended take this as the end of the launcher."""
        self._server.stop(0)
        keyring.remove(self.address.where)

    async def _join(self, key: Hashable, ready: NodeReady) -> AsyncIterator[Part]:
        """Serve calls to a node. When the node stops reading them, it is gone."""
        connection = NodeConnection(ready)
        if not self._on_join(key, connection):
            return
        self._joined[key] = connection
        why = "its connection has ended"
        try:
            async for part in connection.parts():
                yield part
        except LaunchError as error:  # a large array can't be read
            why = str(error)
        finally:
            if self._joined.get(key) is connection:
                del self._joined[key]
            connection.on_gone(NodeGone(why))
            self._on_gone(key, connection)

    def _answer(self, key: Hashable, part: Part) -> None:
        connection = self._joined.get(key)
        if connection is not None:  # else it is gone
            connection.on_part(part)
