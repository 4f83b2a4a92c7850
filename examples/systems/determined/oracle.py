"""The serial truth: every trial trained by one process that nothing disturbs, and ASHA by its definition."""

from collections.abc import Iterator, Sequence

from examples._shared.data import Array, Data
from examples.systems.determined import training
from examples.systems.determined.algorithm import Hyperparameters


def train_alone(
    trial: int,
    hyperparameters: Hyperparameters,
    data: tuple[Data, Data],
    ranks: int = 1,
    begin: tuple[int, Array] | None = None,
) -> Iterator[tuple[int, float, Array]]:
    """Yield, after each epoch, its number, the loss and the parameters."""
    epoch, parameters = begin or (0, training.first_parameters(trial))

    def gradients(parameters: Array, batch: Data) -> list[Array]:
        return [training.part_gradient(parameters, batch, r, ranks) for r in range(ranks)]

    while True:
        parameters = training.train_epoch(parameters, hyperparameters, data[0], epoch, gradients)
        epoch += 1
        yield epoch, training.loss(parameters, data[1]), parameters


def asha_goes_on(reports: Sequence[tuple[int, float]], eta: int) -> bool:
    """True if the last of these reports, of epochs and a loss, lets its trial go on to the next rung."""
    epochs, loss = reports[-1]
    rung = [loss_at_rung for at, loss_at_rung in reports if at == epochs]
    return sum(loss_at_rung < loss for loss_at_rung in rung) < max(len(rung) // eta, 1)
