"""Colocations: several nodes in one place."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from launchpad import context
from launchpad.executable import Executable, Run
from launchpad.nodes.base import Node
from launchpad.nodes.python import PyHandle


class Colocation(Node[PyHandle]):
    """Nodes that run in one place. Ask the nodes in it for their handles, not the colocation."""

    def __init__(self, nodes: Sequence[Node[Any]]) -> None:
        super().__init__()
        self._nodes = tuple(nodes)
        for node in self._nodes:
            if not isinstance(node, Node):
                raise TypeError(f"{type(self).__name__} takes nodes, got {node!r}")
            if isinstance(node, Colocation):
                raise ValueError(f"a colocation cannot hold another one, got {node!r}")
        if not self._nodes:
            raise ValueError(f"{type(self).__name__} needs at least one node")

    def members(self) -> tuple[Node[Any], ...]:
        """The nodes in it."""
        return self._nodes

    def create_handle(self) -> PyHandle:
        """A handle that marks the colocation and cannot be dereferenced."""
        return PyHandle(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._nodes))})"


class MultiThreadingColocation(Colocation):
    """Runs several nodes as threads of one worker; they still call each other through clients.

    When all that had something to run have ended, servers in it go on serving until the program stops;
    without any the worker ends.

    Example:
      replay, learner = lp.CourierNode(Replay), lp.CourierNode(Learner)
      learner.configure(replay.create_handle())
      program.add_node(lp.MultiThreadingColocation([replay, learner]), label="learner")

    Args:
      nodes: What runs in it.
      return_on_first_completed: Ends when the first `run()` ends, not the last.
    """

    def __init__(self, nodes: Sequence[Node[Any]], return_on_first_completed: bool = False) -> None:
        super().__init__(nodes)
        self._first = return_on_first_completed

    def to_executable(self) -> Executable:
        """Its nodes, as threads."""
        return RunThreads([node.to_executable() for node in self._nodes], self._first)


class MultiProcessingColocation(Colocation):
    """Runs several nodes as processes that belong together: one host, one place in a listing.

    Each node in it is a worker of its own, `trainer-0.0`, `trainer-0.1`.

    Example:
      program.add_node(lp.MultiProcessingColocation([loader, trainer]), label="trainer")

    Args:
      nodes: What runs in it.
      num_retries_on_failure: How often each of them is started again after a failure.
    """

    def __init__(self, nodes: Sequence[Node[Any]], num_retries_on_failure: int = 0) -> None:
        super().__init__(nodes)
        if num_retries_on_failure < 0:
            raise ValueError(
                f"num_retries_on_failure cannot be negative, got {num_retries_on_failure}"
            )
        self.num_retries_on_failure = num_retries_on_failure

    def to_executable(self) -> Executable:
        """Never reached: its nodes are workers of their own, and setup asks each of them."""
        raise AssertionError("setup takes a colocation of processes apart")


@dataclass
class RunThreads(Executable):
    """Runs executables as threads of this worker.

    All are opened at once, in threads of their own, since constructors may call each other.
    """

    members: list[Executable]
    return_on_first_completed: bool
    _errors: list[BaseException] = field(default_factory=list, init=False)
    _over: threading.Event = field(default_factory=threading.Event, init=False)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "members": self.members,
            "return_on_first_completed": self.return_on_first_completed,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def open(self) -> Run | None:
        """Opens all; the run methods of those that have one are then run together."""
        context.inherit()
        runs: list[Run | None] = [None] * len(self.members)

        def open_one(index: int) -> None:
            runs[index] = self.members[index].open()

        self._together(
            [functools.partial(open_one, i) for i in range(len(self.members))], first=False
        )
        to_run = [run for run in runs if run is not None]
        return functools.partial(self._run, to_run, len(to_run) < len(runs)) if to_run else None

    def _run(self, calls: Sequence[Run], are_there_servers: bool) -> None:
        self._together(calls, self.return_on_first_completed)
        if are_there_servers and not self.return_on_first_completed:
            me = context.current()
            me.report("done", "")
            me.heeds_stop = True
            me.stop_event.wait()

    def _together(self, calls: Sequence[Run], first: bool) -> None:
        """Runs the calls in threads until all have ended, or one if `first`; raises the first error."""
        self._over.clear()
        left = [len(calls)]
        lock = threading.Lock()

        def run(call: Run) -> None:
            try:
                call()
            except BaseException as error:
                self._errors.append(error)
            with lock:
                left[0] -= 1
                if self._errors or first or left[0] == 0:
                    self._over.set()

        for call in calls:
            threading.Thread(target=run, args=(call,), daemon=True).start()
        self._over.wait()
        if self._errors:
            raise self._errors[0]

    def close(self) -> None:
        """Closes all."""
        for member in reversed(self.members):
            member.close()
