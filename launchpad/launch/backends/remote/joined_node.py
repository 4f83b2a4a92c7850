"""The node's end of `join_server`: a process that the cluster has started joins the launcher."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from launchpad.courier import Client, StreamBroken, keyring
from launchpad.launch.backends.launcher_info import RunSecrets
from launchpad.launch.backends.remote.node_connection import NodeReady
from launchpad.launch.backends.remote.node_host import NodeHost, own_ip
from launchpad.launch.backends.remote.parts import Part


@dataclass(frozen=True)
class LauncherAddress:
    """The launcher's address and keys, which the cluster carries to the node's process.

    Attributes:
        where: The address of the launcher's server.
        versions: The launcher's `launcher_info.versions`.
    """

    where: str
    keys: RunSecrets
    versions: Mapping[str, str]

    def own_ip(self) -> str:
        """Return the address of this host in the launcher's network."""
        return own_ip(self.where.removeprefix("tcp:").rpartition(":")[0].strip("[]"))


def serve(launcher: LauncherAddress, key: Hashable, ready: NodeReady, host: NodeHost) -> None:
    """Serve as a node host until the launcher ends it, or is gone. Leave nothing behind then.

    Args:
        key: Identifies this process among all that join the launcher.

    Raises:
        CourierError: the launcher could not be reached.
        LaunchError: the node's lease has ended, or no answer can be sent.
    """
    keyring.add(launcher.where, launcher.keys.token, launcher.keys.credentials)
    try:
        asyncio.run(_serve(launcher, key, ready, host))
    finally:
        keyring.remove(launcher.where)


async def _serve(
    launcher: LauncherAddress, key: Hashable, ready: NodeReady, host: NodeHost
) -> None:
    with Client(launcher.where, wait_for_ready=False) as connected:
        client: Any = connected
        # A part that is lost would never be sent again, and the launcher would wait for it. A part that comes
        # twice does no harm.
        repeating: Any = connected.with_options(idempotent=True, wait_for_ready=True)

        async def parts() -> AsyncIterator[Part]:
            with contextlib.suppress(StreamBroken):  # the launcher is gone
                async for part in client.aio.join(key, ready):
                    yield part

        async def send(part: Part) -> None:
            # An error ends the node. Otherwise the launcher would wait forever for the answer. If the
            # launcher is gone, the end of the stream says so.
            await repeating.aio.answer(key, part)

        await host.serve(parts(), send)
