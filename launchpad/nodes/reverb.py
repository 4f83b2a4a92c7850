"""ReverbNode: a server of DeepMind's Reverb, with tables of experience for reinforcement learning.

    handle ──▶ reverb.Client ──gRPC──▶ reverb.Server (C++)     localhost:port, or wherever its worker is

Reverb is a separate package. Install it with `pip install 'launchpad-graph[reverb]'`, also on the hosts or in
the image where the node's workers, and those with its clients, run. Only these workers import Reverb.
(Cassirer et al., "Reverb: A Framework for Experience Replay", arXiv 2102.04736.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from launchpad.address import Address, get_port_from_address
from launchpad.courier import extras
from launchpad.courier.checks import is_number
from launchpad.errors import DefinitionError
from launchpad.handle import Handle
from launchpad.nodes.base import Node
from launchpad.runtime import context
from launchpad.runtime.executable import Code, Executable, Run


class ReverbHandle(Handle[Any]):
    """The handle of a ReverbNode; in a worker it turns into a `reverb.Client`.

    Example:
        replay = program.add_node(lp.ReverbNode(make_tables), label="replay")
        program.add_node(lp.PyNode(sample, replay), label="learner")     # in sample: a reverb.Client
    """

    def __init__(self, node: Node[Any], address: Address) -> None:
        super().__init__(node)
        self._address = address

    def dereference(self) -> Any:
        """Return the client. It connects when it is first used, and waits for the server."""
        return _reverb().Client(self._address.resolve())


class ReverbNode(Node[ReverbHandle]):
    """A node that serves Reverb tables.

    Example:
        def make_tables():
          return [reverb.Table.queue("replay", max_size=10_000)]

        replay = program.add_node(lp.ReverbNode(make_tables), label="replay")
        program.add_node(lp.CourierNode(Actor, replay), label="actor")   # in Actor: replay.insert(…)

    Args:
        priority_tables_fn: A function that returns the tables. The worker calls it.
        checkpoint_ctor: A function that returns the checkpointer, which fills the tables at the start. The
            worker calls it. None means Reverb's default checkpointer, in a temporary directory.
        checkpoint_time_delta_minutes: Minutes between checkpoints of the tables. The node writes one more
            when it stops. None means that checkpoints are written only when a client asks for them.

    The node stops last: if its server is gone, a client that samples gets no error and waits indefinitely.

    Raises:
        DefinitionError: `checkpoint_time_delta_minutes` is not more than 0.
        TypeError: `priority_tables_fn` cannot be called.
    """

    stops_last = True

    def __init__(
        self,
        priority_tables_fn: Callable[[], Sequence[Any]],
        checkpoint_ctor: Callable[[], Any] | None = None,
        checkpoint_time_delta_minutes: float | None = None,
    ) -> None:
        super().__init__()
        if not callable(priority_tables_fn):
            raise TypeError(
                f"ReverbNode takes a function that returns tables, got {priority_tables_fn!r}"
            )
        minutes = checkpoint_time_delta_minutes
        if minutes is not None and not (is_number(minutes) and minutes > 0):
            raise DefinitionError(f"checkpoint_time_delta_minutes is positive, got {minutes!r}")
        self._tables = Code(priority_tables_fn)
        self._checkpointer = None if checkpoint_ctor is None else Code(checkpoint_ctor)
        self._minutes = minutes
        self._address = self.allocate_address(Address("reverb"))

    def arguments(self) -> dict[str, Any]:
        checkpointer = None if self._checkpointer is None else self._checkpointer.function
        return {"priority_tables_fn": self._tables.function, "checkpoint_ctor": checkpointer}

    def create_handle(self) -> ReverbHandle:
        return ReverbHandle(self, self._address)

    def to_executable(self) -> Executable:
        return ServeTables(self._tables, self._checkpointer, self._minutes, self._address)

    def __repr__(self) -> str:
        return f"ReverbNode({self._tables.name})"


@dataclass
class ServeTables(Executable):
    """An executable that serves tables, and writes checkpoints of them at intervals."""

    tables: Code
    checkpointer: Code | None
    minutes: float | None
    address: Address
    _server: Any = None
    _writing: threading.Thread | None = None

    def open(self) -> Run | None:
        reverb = _reverb()
        make = self.checkpointer or reverb.checkpointers.default_checkpointer
        tables = list(self.tables())
        checkpointer = make()
        with context.current().stop.interruption.forbidden():
            port = get_port_from_address(self.address.resolve())
            self._server = reverb.Server(tables=tables, port=port, checkpointer=checkpointer)
        if self.minutes is not None:
            self._client = self._server.localhost_client()
            self._is_over = threading.Event()
            every_s = (60 * self.minutes,)
            self._writing = threading.Thread(
                target=self._write_regularly, args=every_s, name="reverb-checkpoints", daemon=True
            )
            self._writing.start()
        return None

    def close(self) -> None:
        """Stop the server. If checkpoints are written at intervals, write a last one first."""
        if self._writing is not None:
            self._is_over.set()
            self._writing.join()
            self._write()
        if self._server is not None:
            self._server.stop()

    def _write_regularly(self, every_s: float) -> None:
        while not self._is_over.wait(every_s):
            self._write()

    def _write(self) -> None:
        print(f"tables written to {self._client.checkpoint()}", flush=True)


def _reverb() -> Any:
    try:
        import reverb
    except ImportError as error:
        raise ImportError(
            f"a ReverbNode needs dm-reverb, which this Python cannot import: {error}."
            f" {extras.install_command('reverb')} (Python 3.11, Linux)"
        ) from error
    return reverb
