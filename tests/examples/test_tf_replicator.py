from __future__ import annotations

import numpy as np
import pytest

from examples._shared.networks import Dense
from examples._shared.problem import Problem
from examples.systems.tf_replicator import claims, oracle
from examples.systems.tf_replicator.algorithm import Replicator
from examples.systems.tf_replicator.models import Trainer
from examples.systems.tf_replicator.replicas import Result
from tests.examples.conftest import assert_refused, noise

PROBLEM = Problem(noise(50), Dense((64, 3, 10)), workers=1, steps=3, slice_size=8)


def test_the_serial_batch_norm_has_the_gradient_that_its_outputs_say() -> None:
    inputs, gradient, direction = np.random.default_rng(0).normal(size=(3, 7, 2))

    _, derivatives = oracle.batch_norm(inputs)

    by_inputs = np.einsum("fij,if->jf", derivatives, gradient)
    above, below = (oracle.batch_norm(inputs + d * direction)[0] for d in (1e-6, -1e-6))
    slope = (gradient * (above - below)).sum() / 2e-6
    assert (by_inputs * direction).sum() == pytest.approx(slope, rel=1e-6)


def test_checks_refuse_what_is_nearly_right() -> None:
    replicator = Replicator()
    alone = replicator.train(Trainer(replicator, PROBLEM), PROBLEM.steps)
    replicator.num_replicas = 2  # the gradients are divided by 2
    of_two = replicator.train(Trainer(replicator, PROBLEM), PROBLEM.steps)
    undisturbed = Result([[1.0]], [np.ones(2)], 1, [])
    killed = undisturbed._replace(attempt=2)
    first, ones = PROBLEM.first_parameters, np.ones_like(PROBLEM.first_parameters)
    both = [Result([], [first - PROBLEM.learning_rate * 2 * ones], 1, [ones])] * 2
    claims.check_serial(alone, PROBLEM, "one replica")
    claims.check_losses(alone, {1: alone})
    claims.check_killed([killed, killed], undisturbed)
    claims.check_applied(both, PROBLEM)

    assert_refused(
        lambda: claims.check_losses(alone, {1: alone, 2: of_two}),
        lambda: claims.check_serial(of_two, PROBLEM, "half a replica"),
        lambda: claims.check_killed([undisturbed], undisturbed),
        lambda: claims.check_killed([killed._replace(variables=[np.ones(2) + 1e-15])], undisturbed),
        lambda: claims.check_killed([killed._replace(outputs=[[0.5]])], undisturbed),
        lambda: claims.check_applied([*both, both[0]], PROBLEM),
    )
