"""The parameter server: it adds up the gradients of all workers, and keeps a ledger of their rows."""

from typing import NamedTuple

import launchpad as lp
from examples._shared.data import Array
from examples._shared.shard import ShardState
from examples.systems.tf_on_spark.algorithm import Id
from examples.systems.tf_on_spark.main_fun import Args
from examples.systems.tf_on_spark.reservation import Reservations

Ledger = list[list[list[Id]]]
"""By step and worker, the rows whose gradients are in the parameters."""


class Trained(NamedTuple):
    """The state of the parameter server."""

    parameters: Array
    ledger: Ledger


class ParameterServer:
    """A parameter server. In each step it applies the gradient of all workers' rows.

    Args:
        me: A client of this server. The server registers it, and workers get it from the reservations.
    """

    def __init__(
        self,
        args: Args,
        workers: int,
        reservations: lp.CourierClient[Reservations],
        me: lp.CourierClient["ParameterServer"],
    ) -> None:
        self._state = ShardState(Trained(args.parameters, []), workers)
        self._learning_rate = args.learning_rate
        self._reservations = reservations
        self._me = me

    def run(self) -> None:
        """Register. The server serves until the program ends."""
        lp.submit(self._reservations.register, "ps", 0, self._me).result()

    @lp.idempotent
    def begin(self, worker: int) -> list[Id]:
        """Return the rows of this worker that are in the parameters.

        If an earlier attempt has pushed in a step that isn't complete, that doesn't count: the worker pushes
        again.
        """
        with self._state.changed:
            self._state.withdraw(worker)
            return [id_ for step in self._state.value.ledger for id_ in step[worker]]

    @lp.idempotent
    def pull(self, worker: int) -> tuple[Array, int]:
        """Return the parameters, and the next step of this worker."""
        with self._state.changed:
            return self._state.value.parameters.copy(), int(self._state.applied[worker])

    @lp.idempotent
    def push(self, worker: int, step: int, gradient: Array, ids: list[Id]) -> tuple[Array, int]:
        """Wait for the gradients of all workers. Return the parameters, and the step's number of rows."""
        with self._state.changed:
            # The sum is in the workers' order, so that the bits don't depend on which came first.
            pushed = self._state.gather(worker, step, (gradient, ids))
            if pushed:
                parameters, ledger = self._state.value
                of_step = [rows for _, rows in pushed]
                n_rows = sum(map(len, of_step))
                if n_rows:
                    mean = sum(of_rows for of_rows, _ in pushed) / n_rows
                    parameters = parameters - self._learning_rate * mean
                self._state.value = Trained(parameters, [*ledger, of_step])
                self._state.count(slice(None))
            self._state.wait(step + 1)
            parameters, ledger = self._state.value
            return parameters.copy(), sum(map(len, ledger[step]))

    @lp.idempotent
    def trained(self) -> Trained:
        """Return the state."""
        with self._state.changed:
            return self._state.value
