"""The blocks of an executor. Spark calls this a block manager."""

import threading
from collections.abc import Callable

from examples._shared.data import Array
from examples.systems.big_dl.algorithm import Block, Task


class BlockStore:
    """The blocks that tasks have made. If a block is missing, the store runs its task.

    Several threads may ask for the same block at once: its task runs once.

    Args:
        run: Runs a task of this executor.

    Attributes:
        made: The tasks that have run, in the order of their ends.
    """

    def __init__(self, run: Callable[[Task], list[Array]]) -> None:
        self.made: list[Task] = []
        self._run = run
        self._blocks: dict[Task, list[Array]] = {}
        self._locks: dict[Task, threading.Lock] = {}

    def get(self, block: Block) -> Array:
        return self.make(block.task)[block.part]

    def make(self, task: Task) -> list[Array]:
        """Return the blocks of a task. Run the task if they are missing."""
        with self._locks.setdefault(task, threading.Lock()):
            if task not in self._blocks:
                self._blocks[task] = self._run(task)
                self.made.append(task)
            return self._blocks[task]

    def put(self, task: Task, blocks: list[Array]) -> None:
        """Keep blocks that were saved, so that their task doesn't run again."""
        self._blocks[task] = blocks

    def drop(self, before: int) -> None:
        """Forget the blocks and locks of older iterations."""
        for by_task in (self._blocks, self._locks):
            for task in [task for task in list(by_task) if task.iteration < before]:
                by_task.pop(task, None)
