from __future__ import annotations

import numpy as np
import pytest

from examples._shared.data import Data
from examples.systems.tf_replicator import claims, oracle
from examples.systems.tf_replicator.algorithm import Replicator, Trained
from examples.systems.tf_replicator.models import RATE, Gan, Normalization
from examples.systems.tf_replicator.program import AsyncResult, SyncResult
from tests.examples.conftest import assert_refused


def test_the_serial_batch_norm_has_the_gradient_that_its_outputs_say() -> None:
    inputs, gradient, direction = np.random.default_rng(0).normal(size=(3, 7, 2))

    _, by_inputs = oracle.batch_norm_and_gradient(inputs, gradient)

    above, below = (oracle.batch_norm(inputs + d * direction)[0] for d in (1e-6, -1e-6))
    slope = (gradient * (above - below)).sum() / 2e-6
    assert (by_inputs * direction).sum() == pytest.approx(slope, rel=1e-6)


def test_the_gan_changes_its_generator_by_the_gradient_of_its_loss() -> None:
    gan = Gan(Replicator(), Data(np.random.default_rng(0).random((100, 64)), np.zeros(100, int)))
    inputs = next(gan.input_fn(0, 1))
    generator, first = gan.variables[0], gan.variables[0].copy()
    gan.step_fn(inputs)
    gradient, discriminator = (first - generator) / RATE, gan.variables[1].copy()
    direction = np.random.default_rng(0).normal(size=first.shape)

    def loss(distance: float) -> float:
        # The generator's loss is that of a step's second half: the discriminator has been changed.
        generator[...] = first + distance * direction
        gan.variables[1][...] = discriminator
        made_up = gan.generator.forward(inputs[1])
        return gan.discriminate(made_up, np.ones((len(made_up), 1)))[0]

    assert gradient @ direction == pytest.approx((loss(1e-6) - loss(-1e-6)) / 2e-6, rel=1e-5)


def test_checks_refuse_what_is_nearly_right() -> None:
    def alone(number: int) -> tuple[object, object]:
        model = Normalization(Replicator())
        return model.step_fn(next(model.input_fn(number, 4)))

    def communicates(self, inputs):
        return self.replicator.all_sum(inputs)

    each_by_itself = Trained([[alone(number) for number in range(4)]], [])
    undisturbed, differs = Trained([[1.0]], [np.ones(2)]), Trained([[1.0]], [np.ones(2) + 1e-15])
    zeros, ones = np.zeros(3), np.ones(3)
    both = [AsyncResult(2, [zeros - RATE * 2 * ones], [ones])] * 2
    claims.check_killed([SyncResult({Gan: undisturbed}, 2)], undisturbed)
    claims.check_applied(both, 2, [zeros])

    assert_refused(
        lambda: claims.check_batch_norm(each_by_itself),
        lambda: claims.check_losses("GAN", undisturbed, {2: Trained([[0.5, 1.4]], [])}),
        lambda: claims.check_names_no_communication(communicates),
        lambda: claims.check_killed([SyncResult({Gan: undisturbed}, 1)], undisturbed),
        lambda: claims.check_killed([SyncResult({Gan: differs}, 2)], undisturbed),
        lambda: claims.check_applied(both, 3, [zeros]),
        lambda: claims.check_applied([*both, both[0]], 2, [zeros]),
    )
