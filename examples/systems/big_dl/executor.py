"""An executor: it runs the tasks that the driver dispatches, and gives their blocks to its peers.

If it dies, launchpad starts it again. It loads the blocks that it had saved, and the driver's call gives it
the tasks of this dispatch again. If its peers ask for a block in the meantime, it runs that block's task
first. The peers run none of their tasks again.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import threadpoolctl

import launchpad as lp
from examples._shared.data import Array
from examples.systems.big_dl.algorithm import SYNCHRONIZATION, Block, Jobs, Task


class Executor:
    """An executor. It runs tasks, and keeps the blocks that they make.

    Args:
        first: Its slice of the first weights.
        deadly: Tasks in the middle of which it dies, in its first attempt.
    """

    def __init__(
        self,
        jobs: Jobs,
        first: Array,
        peers: Sequence[lp.CourierClient[Executor]],
        deadly: Sequence[Task],
    ) -> None:
        threadpoolctl.threadpool_limits(1)  # with more, the bits depend on how many
        me = lp.current()
        self._jobs = jobs
        self._peers = peers
        self._index = me.replica_index
        self._deadly = deadly if me.attempt == 1 else []
        self._n_made = 0
        self._locks: dict[Task, threading.Lock] = {}
        self._blocks = {Task(SYNCHRONIZATION, -1, self._index): [first, np.zeros_like(first)]}
        self._blocks.update(me.load(version=version) for version in me.saved_versions())

    @lp.idempotent
    def execute(self, tasks: Sequence[Task]) -> None:
        """Run the tasks in order. All executors have finished the dispatch before this one."""
        for by_task in (self._blocks, self._locks):
            for task in [each for each in list(by_task) if each.iteration < tasks[0].iteration - 1]:
                by_task.pop(task, None)
        blocks = [self._make(task) for task in tasks][-1]
        last = tasks[-1]
        if last.job == SYNCHRONIZATION:
            # Keep two versions: others may still need blocks that are made from the older one.
            lp.current().save((last, blocks), version=last.iteration + 1, keep=2)

    @lp.idempotent
    def get(self, block: Block) -> Array:
        """Return a block. Make it if it is missing."""
        return self._make(block.task)[block.part]

    @lp.idempotent
    def made(self) -> tuple[int, int]:
        """Return how many tasks ran in this attempt, and the number of the attempt."""
        return self._n_made, lp.current().attempt

    def _make(self, task: Task) -> list[Array]:
        """Return the blocks of a task. Run the task if they are missing: once, also for several threads."""
        with self._locks.setdefault(task, threading.Lock()):
            if task not in self._blocks:
                blocks = self._jobs.run(task, self._get)
                if task in self._deadly:
                    lp.testing.crash()
                self._blocks[task] = blocks
                self._n_made += 1
            return self._blocks[task]

    def _get(self, blocks: Sequence[Block]) -> list[Array]:
        """Return blocks. Those of peers are requested all at once."""
        futures = {
            block: lp.submit(self._peers[block.task.executor].get, block)
            for block in blocks
            if block.task.executor != self._index
        }
        return [futures[b].result() if b in futures else self.get(b) for b in blocks]
