"""A server holds the centre of one rule. Killed, it goes on where it had answered: see _shared/shard.py."""

import launchpad as lp
from examples._shared.digits import Array
from examples._shared.shard import ShardState
from examples.systems.dist_keras.algorithm import Centre


class Server:
    """Holds the centre of one rule.

    Args:
        dies_at: After so many updates the next commit kills its worker, in the first attempt; 0 for never.
    """

    def __init__(self, centre: Centre, dies_at: int = 0) -> None:
        self._state = ShardState(centre, centre.workers)
        self._dies_at = dies_at

    @lp.idempotent
    def pull(self, number: int) -> tuple[Array, int]:
        """Return the centre and how many updates are in it, to a worker that has committed so often."""
        with self._state.changed:
            if self._state.value.is_in_step:
                self._state.wait(number)
            return self._state.value.parameters, len(self._state.value.record)

    @lp.idempotent
    def commit(self, worker: int, number: int, delta: Array, seen: int) -> None:
        """Take a worker's commit, computed when so many updates were seen; once, if it comes again."""
        if lp.current().attempt == 1 and 0 < self._dies_at <= self._state.applied.sum():
            lp.testing.crash()  # without the lock: the stop handler takes it, where this is a thread
        with self._state.update(worker, number) as is_new:
            if is_new:
                self._state.value.commit(worker, delta, seen)

    @lp.idempotent
    def trained(self) -> tuple[Centre, int]:
        """Return all of the centre, and which attempt of the server this is."""
        with self._state.changed:
            return self._state.value, lp.current().attempt
