"""The blocks of an executor: what a block manager is in Spark."""

import threading
from collections.abc import Callable

from examples._shared.digits import Array
from examples.systems.big_dl.algorithm import Block, Task


class BlockStore:
    """Keeps what tasks have made. A block that is not there is made, by its task.

    Several threads may ask for the same at once: the task runs once.

    Args:
        run: Runs a task of this executor.

    Attributes:
        made: The tasks that were run, in the order of their ends.
    """

    def __init__(self, run: Callable[[Task], list[Array]]) -> None:
        self.made: list[Task] = []
        self._run = run
        self._blocks: dict[Task, list[Array]] = {}
        self._locks: dict[Task, threading.Lock] = {}

    def get(self, block: Block) -> Array:
        return self.make(block.task)[block.part]

    def make(self, task: Task) -> list[Array]:
        """Return the blocks of a task, which is run if they are not there."""
        with self._locks.setdefault(task, threading.Lock()):
            if task not in self._blocks:
                self._blocks[task] = self._run(task)
                self.made.append(task)
            return self._blocks[task]

    def put(self, task: Task, blocks: list[Array]) -> None:
        """Keep blocks that are not made here, but were saved."""
        self._blocks[task] = blocks

    def drop(self, before: int) -> None:
        """Forget what is of older iterations."""
        for kept in (self._blocks, self._locks):
            for task in [task for task in list(kept) if task.iteration < before]:
                kept.pop(task, None)
