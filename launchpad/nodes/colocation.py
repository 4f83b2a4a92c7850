"""Colocations: several nodes in one worker, or in processes on one host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from launchpad.courier.checks import is_whole
from launchpad.errors import DefinitionError
from launchpad.nodes.base import Node
from launchpad.nodes.python import UnservedNode
from launchpad.nodes.thread_group import RunColocated
from launchpad.restart_policy import RestartPolicy
from launchpad.runtime.executable import Executable


class Colocation(UnservedNode):
    """Nodes that run together. Get handles from the nodes in it, not from the colocation."""

    def __init__(self, nodes: Sequence[Node[Any]]) -> None:
        super().__init__()
        self._nodes = tuple(nodes)
        for node in self._nodes:
            if not isinstance(node, Node):
                raise TypeError(f"{type(self).__name__} takes nodes, got {node!r}")
            if isinstance(node, Colocation):
                raise ValueError(f"a colocation cannot hold another one, got {node!r}")
        for i, node in enumerate(self._nodes):
            if any(node is earlier for earlier in self._nodes[:i]):
                raise DefinitionError(
                    f"nodes[{i}] of this {type(self).__name__}, {node!r}, is in it already; make another"
                    " node for each that is to run"
                )
        if not self._nodes:
            raise ValueError(f"{type(self).__name__} needs at least one node")

    def members(self) -> tuple[Node[Any], ...]:
        return self._nodes

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._nodes))})"


class MultiThreadingColocation(Colocation):
    """A colocation that runs several nodes as threads of one worker.

    The nodes call each other through clients. When every node with something to run has ended, the servers in
    the colocation go on serving until the program stops. If there are no servers, the worker ends.

    Example:
        replay, learner = lp.CourierNode(Replay), lp.CourierNode(Learner)
        learner.configure(replay.create_handle())
        program.add_node(lp.MultiThreadingColocation([replay, learner]), label="learner")

    Args:
        nodes: The nodes that run in it.
        return_on_first_completed: If True, the worker ends as soon as one `run()` ends. If False, it waits
            for all of them.

    Raises:
        DefinitionError: a node occurs twice in `nodes`.
        TypeError: something in `nodes` is not a node.
        ValueError: `nodes` is empty, or contains a colocation.
    """

    def __init__(self, nodes: Sequence[Node[Any]], return_on_first_completed: bool = False) -> None:
        super().__init__(nodes)
        self._first = return_on_first_completed

    def to_executable(self) -> Executable:
        return RunColocated([node.to_executable() for node in self._nodes], self._first)


class MultiProcessingColocation(Colocation):
    """A colocation that runs several nodes as processes on one host.

    Each node in it is a worker of its own, such as `trainer-0.0` and `trainer-0.1`. Lists show these workers
    together.

    Example:
        program.add_node(lp.MultiProcessingColocation([loader, trainer]), label="trainer")

    Args:
        nodes: The nodes that run in it.
        num_retries_on_failure: How often each node is started again after a failure. A number greater than 0
            replaces the group's restart policy.

    Raises:
        DefinitionError: a node occurs twice in `nodes`.
        TypeError: something in `nodes` is not a node.
        ValueError: `nodes` is empty or contains a colocation, or the number of retries is less than 0.
    """

    def __init__(self, nodes: Sequence[Node[Any]], num_retries_on_failure: int = 0) -> None:
        super().__init__(nodes)
        if not is_whole(num_retries_on_failure, at_least=0):
            raise ValueError(f"num_retries_on_failure is 0 or more, got {num_retries_on_failure}")
        # The number limits all restarts of a worker, however far apart, and each restart is immediate.
        policy = RestartPolicy(max_restarts=num_retries_on_failure, within_s=math.inf, backoff=0.0)
        self.restart = policy if num_retries_on_failure else None

    def to_executable(self) -> Executable:
        """Raise an error: each node is a worker of its own, so the plan has an executable for each node."""
        raise AssertionError("the plan takes a colocation of processes apart")
