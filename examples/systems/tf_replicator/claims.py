"""Checks of the paper's claims, on the results of the deployments."""

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from examples._shared.checks import check
from examples._shared.data import Array, Data
from examples.systems.tf_replicator import oracle
from examples.systems.tf_replicator.algorithm import Replicator, Trained
from examples.systems.tf_replicator.models import BATCH, RATE, Classifier, Gan, Normalization
from examples.systems.tf_replicator.program import AsyncResult, SyncResult

TOLERANCE = 1e-12
COMMUNICATION = set(
    "all_sum all_reduce all_gather broadcast replicator replica_id num_replicas rank size group"
    " server client push lp launchpad".split()
)


def check_names_no_communication(step_fn: Callable[..., Any]) -> None:
    """Check that a user's step_fn names no communication, by searching its source."""
    words = re.findall(r"[a-z_]+", inspect.getsource(step_fn))
    matches = sorted(COMMUNICATION.intersection(words))
    measured = f"{', '.join(matches) or 'nothing of the kind'} in {len(words)} words of its source"
    check(not matches, f"{step_fn.__qualname__} names no communication", measured)


def check_losses(name: str, alone: Trained, together: dict[int, Trained]) -> None:
    """Check that at each step the mean of the replicas' losses is the loss of the whole batch."""
    losses = np.mean(alone.outputs, axis=1)
    means = [np.mean(trained.outputs, axis=1) for trained in together.values()]
    difference = max(_distance(mean, losses) for mean in means)
    claim = f"losses of the {name} are the same with 1, {', '.join(map(str, together))} replicas"
    check(
        difference <= TOLERANCE,
        claim,
        f"at {len(losses)} steps they differ by at most {difference:.1e}",
    )


def check_serial(trained: Trained, examples: Data) -> None:
    """Check the losses and parameters of a classifier against those of a serial program."""
    losses, parameters = oracle.train(examples, len(trained.outputs), BATCH, RATE)
    by_losses = _distance(np.mean(trained.outputs, axis=1), np.array(losses))
    by_parameters = _distance(trained.variables[0], parameters)
    claim = "a serial program without Replicator has the same losses and parameters"
    measured = f"they differ by {by_losses:.1e} and {by_parameters:.1e}"
    check(max(by_losses, by_parameters) <= TOLERANCE, claim, measured)


def check_batch_norm(trained: Trained, uses_torch: bool = False) -> None:
    """Check that the replicas' parts are batch norm of the whole batch, and its gradient."""
    parts = zip(*trained.outputs[0], strict=True)
    outputs, gradient = (np.stack(part, axis=1).reshape(BATCH, -1) for part in parts)
    inputs_and_gradient = next(Normalization(Replicator()).input_fn(0, 1))
    expected = (_by_torch if uses_torch else oracle.batch_norm_and_gradient)(*inputs_and_gradient)
    forward = _distance(outputs, expected[0])
    backward = _distance(gradient, expected[1])
    by = "torch" if uses_torch else "numpy"
    claim = (
        f"batch norm over {len(trained.outputs[0])} replicas is that of {by} over the whole batch"
    )
    measured = f"outputs differ by {forward:.1e}, gradients by {backward:.1e}"
    check(max(forward, backward) <= TOLERANCE, claim, measured)


def _by_torch(inputs: Array, gradient: Array) -> tuple[Array, Array]:
    import torch

    x = torch.tensor(inputs, requires_grad=True)
    outputs = torch.nn.functional.batch_norm(x, None, None, training=True)
    (by_inputs,) = torch.autograd.grad(outputs, x, torch.tensor(gradient))
    return outputs.detach().numpy(), by_inputs.numpy()


def _distance(x: Array, y: Array) -> float:
    return float(np.abs(x - y).max())


def check_gan_learns(trained: Trained, held_out: Data) -> None:
    """Check that the mean of the generated images has come nearer to that of digits."""
    gan = Gan(Replicator(), held_out)
    distances = []
    _, noise = next(gan.input_fn(0, 1))
    for variables in (gan.variables[0].copy(), trained.variables[0]):
        gan.variables[0][...] = variables
        mean = gan.generator.forward(noise).mean(axis=0)
        distances.append(np.abs(mean - held_out.inputs.mean(axis=0)).mean())
    claim = "the mean generated image comes nearer to the mean held-out digit"
    measured = "from {:.2f} to {:.2f} per pixel".format(*distances)
    check(distances[1] < distances[0] / 2, claim, measured)


def check_killed(killed: Sequence[SyncResult], undisturbed: Trained) -> None:
    """Check that replicas, one of which was killed, have the losses and variables of undisturbed ones."""
    are_equal = all(
        of_replica.generation == 2
        and of_replica.trained[Gan].outputs == undisturbed.outputs
        and all(map(np.array_equal, of_replica.trained[Gan].variables, undisturbed.variables))
        for of_replica in killed
    )
    claim = "if one of the replicas is killed, the losses and variables are the same, bit for bit"
    measured = f"{len(undisturbed.outputs)} steps, {killed[0].generation} generations"
    check(are_equal, claim, measured)


def check_applied(replicas: Sequence[AsyncResult], pushes: int, first: Sequence[Array]) -> None:
    """Check that all gradients pushed, counted at the edges, are in the server's variables."""
    last = max(replicas, key=lambda replica: replica.applied)
    check(
        last.applied == pushes,
        "each gradient that is pushed is applied",
        f"{pushes} pushed, {last.applied} applied",
    )
    difference = 0.0
    for number, variable in enumerate(last.variables):
        pushed = sum(replica.pushed[number] for replica in replicas)
        difference = max(difference, _distance(first[number] - RATE * pushed, variable))
    claim = (
        "the server's variables are the first ones minus rate × the gradients that replicas pushed"
    )
    check(
        difference <= TOLERANCE, claim, f"{len(first)} variables differ by at most {difference:.1e}"
    )


def check_accuracy(sync: Trained, replicas: Sequence[AsyncResult], held_out: Data) -> None:
    """Check that asynchronous replicas learn nearly as well."""
    last = max(replicas, key=lambda replica: replica.applied)
    accuracies = []
    for parameters in (sync.variables[0], last.variables[0]):
        classifier = Classifier(Replicator(), held_out)
        classifier.variables[0][...] = parameters
        answers = classifier.network.forward(held_out.inputs).argmax(axis=1)
        accuracies.append(np.mean(answers == held_out.targets))
    claim = (
        f"with mode='async' replicas recognise nearly as many of {len(held_out)} held-out digits as with"
        " mode='sync'"
    )
    measured = "{1:.3f} instead of {0:.3f}".format(*accuracies)
    check(accuracies[1] >= accuracies[0] - 0.02, claim, measured)
