from __future__ import annotations

import numpy as np
import pytest

import launchpad as lp
from examples._shared.digits import Digits
from examples.tf_replicator import claims, oracle
from examples.tf_replicator.algorithm import Replicator, Trained
from examples.tf_replicator.models import RATE, Gan, Normalization
from examples.tf_replicator.program import AsyncResult, SyncResult, replicate

CLAIMS = """
Classifier.step_fn names no communication
Gan.step_fn names no communication
losses of the classifier are the same with 1, 2, 4 replicas
a serial program without Replicator has the same losses and parameters
batch norm over 4 replicas is that of numpy over the whole batch
losses of the GAN are the same with 1, 2 replicas
images made up come nearer, in their mean, to digits that were held out
replicas one of which is killed have the same losses and variables, bit for bit
each gradient pushed is applied
the server's variables are the first ones less the gradients that replicas pushed
with mode='async' replicas read 359 held-out digits nearly as well
""".strip().splitlines()


@pytest.mark.slow
def test_the_same_step_trains_in_all_deployments_and_a_killed_replica_changes_no_bit(
    run_system, launch_type
) -> None:
    printed = run_system("tf_replicator", launch_type)

    for claim in CLAIMS:
        assert f"ok    {claim}: " in printed
    assert "60 steps, 2 generations" in printed


@pytest.mark.slow
def test_batch_norm_over_replicas_has_the_outputs_and_gradients_of_torch() -> None:
    pytest.importorskip("torch")
    program = lp.Program("normalization")
    replicate(program, "four", 4, [Normalization], None, 1)

    (first, *_) = lp.run(program, "test_mp", timeout_s=60)["four"]

    claims.check_batch_norm(first.trained[Normalization], uses_torch=True)


def test_the_serial_batch_norm_has_the_gradient_that_its_outputs_say() -> None:
    inputs, gradient, direction = np.random.default_rng(0).normal(size=(3, 7, 2))

    _, by_inputs = oracle.batch_norm_and_gradient(inputs, gradient)

    above, below = (oracle.batch_norm(inputs + d * direction)[0] for d in (1e-6, -1e-6))
    slope = (gradient * (above - below)).sum() / 2e-6
    assert (by_inputs * direction).sum() == pytest.approx(slope, rel=1e-6)


def test_the_gan_changes_its_generator_by_the_gradient_of_its_loss() -> None:
    gan = Gan(Replicator(), Digits(np.random.default_rng(0).random((100, 64)), np.zeros(100, int)))
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


def test_a_batch_norm_of_each_replica_by_itself_is_refused() -> None:
    def alone(number: int) -> tuple[object, object]:
        model = Normalization(Replicator())
        return model.step_fn(next(model.input_fn(number, 4)))

    with pytest.raises(ArithmeticError, match="over 4 replicas is that of numpy"):
        claims.check_batch_norm(Trained([[alone(number) for number in range(4)]], []))


def test_losses_of_another_batch_are_refused() -> None:
    with pytest.raises(ArithmeticError, match="losses of the GAN are the same with 1, 2 replicas"):
        claims.check_losses("GAN", Trained([[1.0]], []), {2: Trained([[0.5, 1.4]], [])})


def test_a_step_that_names_communication_is_refused() -> None:
    def step_fn(self, inputs):
        return self.replicator.all_sum(inputs)

    with pytest.raises(ArithmeticError, match="all_sum, replicator in"):
        claims.check_names_no_communication(step_fn)


def test_replicas_that_lost_a_bit_or_were_not_killed_are_refused() -> None:
    undisturbed, differs = Trained([[1.0]], [np.ones(2)]), Trained([[1.0]], [np.ones(2) + 1e-15])
    claims.check_killed([SyncResult({Gan: undisturbed}, 2)], undisturbed)

    for wrong in (SyncResult({Gan: undisturbed}, 1), SyncResult({Gan: differs}, 2)):
        with pytest.raises(ArithmeticError, match="bit for bit"):
            claims.check_killed([wrong], undisturbed)


def test_a_lost_gradient_is_refused() -> None:
    first, gradient = np.zeros(3), np.ones(3)
    both = [AsyncResult(2, [first - RATE * 2 * gradient], [gradient])] * 2
    claims.check_applied(both, 2, [first])

    with pytest.raises(ArithmeticError, match="each gradient pushed is applied"):
        claims.check_applied(both, 3, [first])
    with pytest.raises(ArithmeticError, match="less the gradients that replicas pushed"):
        claims.check_applied([*both, both[0]], 2, [first])
