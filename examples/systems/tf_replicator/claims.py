"""Checks of the paper's claims, on the results of the deployments."""

from collections.abc import Mapping, Sequence

import numpy as np

from examples._shared.checks import check
from examples._shared.data import Array
from examples._shared.problem import Problem
from examples.systems.tf_replicator import oracle
from examples.systems.tf_replicator.algorithm import Trained
from examples.systems.tf_replicator.replicas import Result

TOLERANCE = 1e-12
AnyResult = Result | Trained


def check_losses(alone: AnyResult, together: Mapping[int, AnyResult]) -> None:
    """Check that at each step the mean of the replicas' losses is the loss of the whole batch."""
    losses = np.mean(alone.outputs, axis=1)
    means = [np.mean(trained.outputs, axis=1) for trained in together.values()]
    difference = max(distance(mean, losses) for mean in means)
    claim = f"losses are the same with 1, {', '.join(map(str, together))} replicas"
    measured = f"at {len(losses)} steps they differ by at most {difference:.1e}"
    check(difference <= TOLERANCE, claim, measured)


def check_serial(trained: AnyResult, problem: Problem, who: str) -> None:
    """Check the losses and parameters of replicas against those of a serial program."""
    losses, parameters = oracle.train(problem)
    by_losses = distance(np.mean(trained.outputs, axis=1), np.array(losses))
    by_parameters = distance(trained.variables[0], parameters)
    claim = f"{who} have the losses and parameters of a serial program"
    measured = f"they differ by {by_losses:.1e} and {by_parameters:.1e}"
    check(max(by_losses, by_parameters) <= TOLERANCE, claim, measured)


def distance(x: Array, y: Array) -> float:
    """Return the largest difference between two arrays."""
    return float(np.abs(x - y).max())


def check_killed(killed: Sequence[Result], undisturbed: Result) -> None:
    """Check that replicas, one of which was killed, have the losses and variables of undisturbed ones."""
    are_equal = all(
        of_replica.attempt == 2
        and of_replica.outputs == undisturbed.outputs
        and all(map(np.array_equal, of_replica.variables, undisturbed.variables))
        for of_replica in killed
    )
    claim = "if one of the replicas is killed, the losses and variables are the same, bit for bit"
    measured = f"{len(undisturbed.outputs)} steps, attempt {killed[0].attempt} of both replicas"
    check(are_equal, claim, measured)


def check_applied(replicas: Sequence[Result], problem: Problem) -> None:
    """Check that the server has applied each gradient once, and nothing else."""
    pushed = sum(replica.pushed[0] for replica in replicas)
    expected = problem.first_parameters - problem.learning_rate * pushed
    difference = distance(expected, replicas[0].variables[0])
    check(
        difference <= TOLERANCE,
        "the server's variables are the first ones minus rate × the gradients that replicas pushed",
        f"they differ by at most {difference:.1e}",
    )
