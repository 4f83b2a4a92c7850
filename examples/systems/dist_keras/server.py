"""The server of a rule. After a kill it goes on from its last acknowledged update: see _shared/shard.py."""

import launchpad as lp
from examples._shared.data import Array
from examples._shared.shard import ShardState
from examples.systems.dist_keras.algorithm import Centre


class Server:
    """A server that holds the centre of one rule. It dies once after `dies_at` updates, if that is not 0."""

    def __init__(self, centre: Centre, dies_at: int = 0) -> None:
        self._state = ShardState(centre, centre.workers)
        self._dies_at = dies_at

    @lp.idempotent
    def pull(self, number: int) -> tuple[Array, int]:
        """Return the centre, and how many updates are in it, to a worker with `number` commits."""
        with self._state.changed:
            if self._state.value.is_in_step:
                self._state.wait(number)
            return self._state.value.parameters, len(self._state.value.record)

    @lp.idempotent
    def commit(self, worker: int, number: int, delta: Array, seen: int) -> None:
        """Take a worker's commit, which it computed after it had seen `seen` updates."""
        if lp.current().attempt == 1 and 0 < self._dies_at <= self._state.applied.sum():
            # Don't hold the lock here: if this worker is a thread, its stop handler takes the lock.
            lp.testing.crash()
        with self._state.update(worker, number) as is_new:
            if is_new:
                self._state.value.commit(worker, delta, seen)

    @lp.idempotent
    def trained(self) -> tuple[Centre, int]:
        """Return the whole centre, and the attempt of the server."""
        with self._state.changed:
            return self._state.value, lp.current().attempt
