"""An executor: it runs the tasks that the driver dispatches, and its peers get the blocks that they make.

One that dies is started again with what it had saved, and is given the tasks of this dispatch again. What
others ask for meanwhile is made on the way. They make nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import threadpoolctl

import launchpad as lp
from examples._shared.digits import Array
from examples.systems.big_dl.algorithm import SYNCHRONIZATION, Block, Jobs, Task
from examples.systems.big_dl.block_store import BlockStore


class Executor:
    """Runs tasks, and keeps the blocks that they make.

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
        self._jobs, self._peers, self._index = jobs, peers, me.replica_index
        self._deadly = deadly if me.attempt == 1 else []
        self._store = BlockStore(self._run)
        self._store.put(Task(SYNCHRONIZATION, -1, self._index), [first, np.zeros_like(first)])
        for version in me.saved_versions():
            self._store.put(*me.load(version=version))

    @lp.idempotent
    def execute(self, tasks: Sequence[Task]) -> None:
        """Run them, in order. All of the dispatch before has been done, by all executors."""
        self._store.drop(before=tasks[0].iteration - 1)
        blocks = [self._store.make(task) for task in tasks][-1]
        last = tasks[-1]
        if last.job == SYNCHRONIZATION:
            # Of two, since others may still lack blocks that are made from the older one.
            lp.current().save((last, blocks), version=last.iteration + 1, keep=2)

    @lp.idempotent
    def get(self, block: Block) -> Array:
        """Return a block; make it if it is not there."""
        return self._store.get(block)

    @lp.idempotent
    def made(self) -> tuple[int, int]:
        """How many tasks were run in this attempt, and which one it is."""
        return len(self._store.made), lp.current().attempt

    def _run(self, task: Task) -> list[Array]:
        blocks = self._jobs.run(task, self._get)
        if task in self._deadly:
            lp.testing.crash()
        return blocks

    def _get(self, blocks: Sequence[Block]) -> list[Array]:
        """Get blocks from wherever they are, all at once."""
        futures = {
            block: lp.submit(self._peers[block.task.executor].get, block)
            for block in blocks
            if block.task.executor != self._index
        }
        return [futures[b].result() if b in futures else self.get(b) for b in blocks]
