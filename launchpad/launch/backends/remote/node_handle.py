"""The launcher's handle of a worker's host on a node that it has connected with."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from launchpad.errors import LaunchError
from launchpad.launch.backends.remote.host_handle import HostHandle
from launchpad.launch.backends.remote.node_connection import NodeConnection, NodeGone


@dataclass(eq=False)
class NodeHandle(HostHandle):
    """A handle of one worker's host on a node.

    Attributes:
        node: The name of the node, as the user has given it.
        connection: The connection with the node. It is None only because dataclasses need a default.
    """

    node: str = ""
    connection: NodeConnection | None = None

    @property
    def lease_of(self) -> object:
        return self.connection

    def call(self, method: str, *arguments: Any, **options: Any) -> Future[Any]:
        assert self.connection is not None
        return self.connection.call(self.worker, method, *arguments, **options)

    def post(self, method: str, *arguments: Any, **options: Any) -> None:
        assert self.connection is not None
        self.connection.post(self.worker, method, *arguments, **options)

    def end(self) -> None:
        self.post("end")

    def is_surely_dead(self, error: BaseException) -> bool:
        return error.is_dead if isinstance(error, NodeGone) else True

    def describe_death(self, error: BaseException) -> str:
        return f"its host {self.node} was lost: {self.describe_error(error)}"

    def describe_error(self, error: BaseException) -> str:
        if isinstance(error, LaunchError | NodeGone):
            return str(error)
        return f"{type(error).__name__}: {error}"
