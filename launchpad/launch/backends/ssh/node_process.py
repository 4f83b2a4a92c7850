"""The process on a host: a node host, which reads calls from stdin and writes answers to the ssh connection.

stdin is the lifeline. It ends when the launcher ends, in whatever way, and when the connection breaks.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from launchpad.errors import LaunchError
from launchpad.launch.backends import launcher_info
from launchpad.launch.backends.remote.node_connection import NodeReady
from launchpad.launch.backends.remote.node_host import NodeHost, node
from launchpad.launch.backends.remote.parts import Part
from launchpad.launch.backends.remote.placement import NodeSupply
from launchpad.launch.backends.remote.worker_host import HostReady
from launchpad.launch.backends.ssh import wire
from launchpad.launch.devices import cpus, inventory, out_of_memory
from launchpad.launch.devices.device import VISIBLE, visible
from launchpad.launch.rundir.claims import claim_table

_REMEDY = "Install the launcher's versions there, or name another Python: hosts={…: {'python': …}}"


def serve(header: Mapping[str, Any], output: int, say_hello: Callable[[str], object]) -> None:
    """Serve as a node host until the launcher is gone.

    Args:
        header: What the launcher has sent first.
        output: The descriptor for answers.
        say_hello: Takes the reason why this host can't be used; empty if it can.
    """
    differs = launcher_info.differences(header["versions"])
    refusal = f"it is not like the launcher: {differs}. {_REMEDY}" if differs else ""
    say_hello(refusal)
    if refusal:
        return
    asyncio.run(_serve(header, output))


async def _serve(header: Mapping[str, Any], output: int) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", 0)
    )
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(output, "wb", 0)
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    where = HostReady(node(), header["address"] or _address())
    supply = _supply(header)
    writer.write(wire.pickled(NodeReady(where, supply=supply)))

    async def parts() -> AsyncIterator[Part]:
        while True:
            try:
                part = await wire.read_pickled(reader)
            except EOFError:
                return
            yield part

    async def send(part: Part) -> None:
        writer.write(wire.pickled(part))
        await writer.drain()

    host = NodeHost(where, header["versions"], _REMEDY, devices=supply.devices)
    try:
        await host.serve(parts(), send)
    except LaunchError as error:
        print(error, file=sys.stderr)


def _address() -> str:
    """Return the address of this host that the ssh client has reached."""
    _, _, ip, _ = os.environ["SSH_CONNECTION"].split()
    return ip.partition("%")[0].removeprefix("::ffff:")


def _supply(header: Mapping[str, Any]) -> NodeSupply:
    """Return what this host has for workers. Don't look for GPUs if no worker needs one."""
    memory = out_of_memory.usable_bytes()
    if not header["gpus"]:
        return NodeSupply(cpus.number_of_cpus(), memory)
    devices = visible(inventory.installed(), os.environ.get(VISIBLE))
    with claim_table() as table:
        # Workers of a former node process of this launch end soon, and leave theirs.
        taken = dict(table.taken(besides=header["run"]))
    return NodeSupply(cpus.number_of_cpus(), memory, devices, taken)
