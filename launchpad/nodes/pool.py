"""PoolNode: a worker for `lp.pool`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launchpad.courier.checks import is_whole
from launchpad.errors import refuse_unless
from launchpad.nodes.courier import CourierNode, ServeObject
from launchpad.pools.worker import PoolWorker
from launchpad.runtime.executable import Executable


class PoolNode(CourierNode[PoolWorker]):
    """A node that runs the functions, lambdas and closures that a pool sends, including the script's own.

    Example:
        program = lp.Program("sweep")
        with program.group("worker", restart=lp.RestartPolicy()):
          workers = [program.add_node(lp.PoolNode(initializer=load_tables)) for _ in range(8)]
        program.add_node(lp.PyNode(search, workers), label="search")    # in search: lp.pool(workers)

    Args:
        slots: The number of calls that a worker runs at the same time, each in a thread.
        initializer: Called once in each worker, before it serves; an exception in it ends the worker.
        initargs: The arguments of the initializer; they may contain handles.
        courier_kwargs: As for `CourierNode`.

    Raises:
        DefinitionError: `slots` is less than 1, or the initializer does not take these arguments.
    """

    def __init__(
        self,
        slots: int = 1,
        *,
        initializer: Callable[..., object] | None = None,
        initargs: Sequence[Any] = (),
        courier_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.slots = slots
        self.initializer = initializer
        is_function = initializer is None or callable(initializer)
        rules = (
            ("slots", is_whole(slots, at_least=1), "an int, 1 or more"),
            ("initializer", is_function, "a function, or None"),
        )
        refuse_unless(self, rules)
        super().__init__(
            PoolWorker, slots, initializer, tuple(initargs), courier_kwargs=courier_kwargs
        )

    def to_executable(self) -> Executable:
        return ServePool(
            self._code, self._args, self._kwargs, self._runs, self._address, self._server_kwargs
        )

    def __repr__(self) -> str:
        return f"PoolNode(slots={self.slots})"


class ServePool(ServeObject):
    """An executable that serves a PoolWorker. At the end, it doesn't wait for calls that still run."""

    def abandon(self) -> None:
        if isinstance(self._built, PoolWorker):
            self._built.end()
        super().abandon()

    def close(self) -> None:
        if isinstance(self._built, PoolWorker):
            self._built.end()
        super().close()
