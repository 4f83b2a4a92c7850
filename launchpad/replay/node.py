"""ReplayNode: a server of tables of experience, for reinforcement learning.

    actor ──insert──▶ ┐                    ┌──sample──▶ learner
    actor ──insert──▶ ├─▶ tables of items ─┤
    actor ──insert──▶ ┘                    └◀─update_priorities── learner

The terms are those of Reverb (Cassirer et al., arXiv 2102.04736). For Reverb itself, use a ReverbNode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from launchpad.address import COURIER, Address
from launchpad.errors import DefinitionError
from launchpad.nodes.base import Node
from launchpad.nodes.courier import ServeObject, ServiceHandle, checked_server
from launchpad.replay.client import ReplayClient
from launchpad.replay.server import ReplayServer
from launchpad.replay.table import Table
from launchpad.runtime.executable import Code, Executable


class ReplayHandle(ServiceHandle[ReplayClient]):
    """A handle of a ReplayNode. Inside a worker it turns into an `lp.replay.ReplayClient`.

    Example:
        replay = program.add_node(lp.ReplayNode([lp.replay.Table.queue("rows", 100)]), label="replay")
        program.add_node(lp.PyNode(act, replay), label="actor")          # in act: replay.insert(…)
    """

    made_into = ReplayClient


class ReplayNode(Node[ReplayHandle]):
    """A server of tables of experience: actors insert items, and learners sample them.

    Example:
        replay = program.add_node(
            lp.ReplayNode([
                lp.replay.Table(
                    "transitions",
                    sampler=lp.replay.Prioritized(0.6),
                    remover=lp.replay.Fifo(),
                    max_size=100_000,
                    rate_limiter=lp.replay.SampleToInsertRatio(8, 1000, error_buffer=800),
                )
            ]),
            label="replay",
        )
        program.add_node(lp.PyClassNode(Actor, replay), label="actor")      # replay.insert(…)
        program.add_node(lp.PyClassNode(Learner, replay), label="learner")  # replay.batches(…)

    The tables are saved at the same times as the object of a CourierNode: every `save_every_s` seconds of the
    group's RestartPolicy, before a planned restart, and at the end if `launch(state=…)` keeps state. They are
    also saved by `client.checkpoint()`. If the server is killed and restarted, it starts with the last saved
    state. If no state was saved, its tables are empty.

    Args:
        tables: Tables with different names.
        courier_kwargs: Options of the server, the same as those of a CourierNode.

    Raises:
        DefinitionError: there is no table, or two tables have the same name.
    """

    def __init__(
        self, tables: Sequence[Table], *, courier_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        self._tables = tuple(tables)
        for table in self._tables:
            if not isinstance(table, Table):
                raise TypeError(f"ReplayNode takes a list of lp.replay.Table, got {table!r} in it")
        if not self._tables:
            raise DefinitionError("a ReplayNode needs at least one table, and was given none")
        twice = [n for n, times in Counter(t.name for t in self._tables).items() if times > 1]
        if twice:
            raise DefinitionError(f"a ReplayNode has two tables of the name {twice[0]!r}")
        self._server_kwargs = checked_server(courier_kwargs)
        self._address = self.allocate_address(Address("courier", kind=COURIER))

    def arguments(self) -> dict[str, Any]:
        return {"tables": self._tables}

    def create_handle(self) -> ReplayHandle:
        return ReplayHandle(self, self._address)

    def to_executable(self) -> Executable:
        code = Code(ReplayServer)
        return ServeObject(code, (self._tables,), {}, False, self._address, self._server_kwargs)

    def __repr__(self) -> str:
        return f"ReplayNode({[table.name for table in self._tables]})"
