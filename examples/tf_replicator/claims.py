"""What the paper claims, held against what the deployments have trained."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from examples._shared.checks import check
from examples._shared.digits import Array, Digits
from examples.tf_replicator import oracle
from examples.tf_replicator.algorithm import Replicator
from examples.tf_replicator.models import BATCH, RATE, Classifier, Gan, Normalization
from examples.tf_replicator.program import Served, Trained

COMMUNICATION = set(
    "all_sum all_reduce all_gather map_gather broadcast replicator replica_id num_replicas"
    " rank size group server client push lp launchpad".split()
)


def check_names_no_communication(step_fn: Callable[..., Any]) -> None:
    words = re.findall(r"[a-z_]+", inspect.getsource(step_fn))
    found = sorted(COMMUNICATION.intersection(words))
    measured = f"{', '.join(found) or 'nothing of the kind'} in {len(words)} words of its source"
    check(not found, f"{step_fn.__qualname__} names no communication", measured)


def check_losses(name: str, alone: Trained, together: dict[int, Trained]) -> None:
    """Check that at each step the mean of the replicas' losses is the loss of the whole batch."""
    whole = np.array(alone.outputs)[:, 0]
    means = [np.array(trained.outputs).mean(axis=1) for trained in together.values()]
    difference = max(float(np.abs(mean - whole).max()) for mean in means)
    claim = f"losses of the {name} are the same with 1, {', '.join(map(str, together))} replicas"
    check(difference <= 1e-12, claim, f"{len(whole)} steps, largest difference {difference:.1e}")


def check_serial(trained: Trained, examples: Digits) -> None:
    """Check losses and parameters of a classifier by those of a serial program."""
    steps = len(trained.outputs)
    losses, parameters = oracle.train(examples, steps, BATCH, RATE)
    by_losses = np.abs(np.mean(trained.outputs, axis=1) - losses).max()
    by_parameters = np.abs(trained.variables[0] - parameters).max()
    check(
        max(by_losses, by_parameters) <= 1e-12,
        "a serial program without Replicator has the same losses and parameters",
        f"{steps} steps, largest differences {by_losses:.1e} and {by_parameters:.1e}",
    )


def check_batch_norm(trained: Trained, uses_torch: bool = False) -> None:
    """Check that what replicas have of a batch is batch norm of the whole, and its gradient."""
    parts = zip(*trained.outputs[0], strict=True)
    outputs, gradient = (np.stack(part, axis=1).reshape(BATCH, -1) for part in parts)
    whole = next(Normalization(Replicator()).input_fn(0, 1))
    if uses_torch:
        source, (of_whole, gradient_of_whole) = "torch", _by_torch(*whole)
    else:
        of_whole, derivatives = oracle.batch_norm(whole[0])
        source, gradient_of_whole = "its derivatives", oracle.backward(derivatives, whole[1])
    forward = float(np.abs(outputs - of_whole).max())
    backward = float(np.abs(gradient - gradient_of_whole).max())
    check(
        max(forward, backward) <= 1e-12,
        f"batch norm over {len(trained.outputs[0])} replicas is that of the whole batch, by {source}",
        f"outputs differ by {forward:.1e}, gradients by {backward:.1e}",
    )


def _by_torch(inputs: Array, gradient: Array) -> tuple[Array, Array]:
    import torch

    x = torch.tensor(inputs, requires_grad=True)
    outputs = torch.nn.functional.batch_norm(x, None, None, training=True)
    outputs.backward(torch.tensor(gradient))
    return outputs.detach().numpy(), x.grad.numpy()  # type: ignore[union-attr]


def check_asynchronous(served: list[Served], pushes: int, alone: Trained, held_out: Digits) -> None:
    """Check that the server has lost no gradient, and that what it has learned is as good."""
    applied, parameters = served[0].applied, served[0].variables[0]
    check(pushes == applied, "each gradient pushed was applied", f"{pushes} and {applied}")
    total = sum(of_replica.pushed[0] for of_replica in served)
    first = Classifier(Replicator(), held_out).variables[0]
    difference = float(np.abs(first - RATE * total - parameters).max())
    claim = "the server's variables are the first ones less all gradients"
    check(difference <= 1e-12, claim, f"largest difference {difference:.1e}")
    in_step, out_of_step = (accuracy(p, held_out) for p in (alone.variables[0], parameters))
    claim = f"replicas out of step read {len(held_out)} held-out digits nearly as well"
    check(out_of_step > in_step - 0.03, claim, f"{out_of_step:.3f}, and {in_step:.3f} in step")


def accuracy(parameters: Array, digits: Digits) -> float:
    classifier = Classifier(Replicator(), digits)
    classifier.variables[0][...] = parameters
    return float((classifier.network.forward(digits.images).argmax(1) == digits.labels).mean())


def check_gan_learns(trained: Trained, held_out: Digits) -> None:
    """Check that the mean of the images made up has come nearer to that of digits."""
    gan, distances = Gan(Replicator(), held_out), []
    _, noise = next(gan.input_fn(0, 1))
    for variables in (gan.variables, trained.variables):
        gan.variables[0][...] = variables[0]
        mean = gan.generator.forward(noise).mean(axis=0)
        distances.append(float(np.abs(mean - held_out.images.mean(axis=0)).mean()))
    claim = "the mean of images made up has come nearer to that of digits"
    check(
        distances[1] < distances[0] / 2, claim, "{:.2f}, and {:.2f} before".format(*distances[::-1])
    )


def check_killed(killed: list[tuple[Trained, int]], undisturbed: Trained) -> None:
    """Check that replicas one of which was killed have the losses and variables of others."""
    generations = [generation for _, generation in killed]
    are_equal = all(
        trained.outputs == undisturbed.outputs
        and all(map(np.array_equal, trained.variables, undisturbed.variables))
        for trained, _ in killed
    )
    check(
        are_equal and set(generations) == {2},
        "replicas that began again when one was killed have the same losses and variables, bit for bit",
        f"{len(undisturbed.outputs)} steps in {generations[0]} attempts",
    )
