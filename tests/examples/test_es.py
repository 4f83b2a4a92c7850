from __future__ import annotations

import numpy as np
import pytest

from examples._shared.networks import Dense
from examples.es.cartpole import CartPole
from examples.es.claims import check_equals_training_alone, check_kill, check_return
from examples.es.evolution import centred_ranks
from examples.es.game import Game
from examples.es.workers import Trained
from tests.examples.conftest import assert_refused


def test_ranks_go_from_minus_a_half_to_a_half_and_those_of_equals_are_equal() -> None:
    ranks = centred_ranks(np.array([[3.0, 1000.0], [-5.0, 4.0], [5.0, 6.0]]))

    assert ranks == pytest.approx(np.array([[-0.3, 0.5], [-0.5, -0.1], [0.1, 0.3]]))
    assert np.array_equal(centred_ranks(np.full((4, 2), 500.0)), np.zeros((4, 2)))


def test_checks_refuse_other_policies() -> None:
    policy = np.ones(CartPole.n_parameters)
    undisturbed = Trained(policy, [], attempts=[1, 1])

    check_kill(Trained(policy, [], attempts=[2, 1]), undisturbed)

    assert_refused(
        lambda: check_return(0 * policy, CartPole()),
        lambda: check_equals_training_alone(policy, policy + 1e-15),
        lambda: check_kill(undisturbed, undisturbed),
        lambda: check_kill(Trained(0 * policy, [], attempts=[2, 1]), undisturbed),
    )


def test_a_network_plays_a_game_the_same_way_from_the_same_seed() -> None:
    game = Game("CartPole-v1", Dense((4, 2)))
    to_the_left = np.repeat([0.0, 1.0], [8, 2]) * [1]  # the bias of the second action is larger

    returns = [game.play(to_the_left, seed=3) for _ in range(2)]

    assert game.n_parameters == 10
    assert returns[0] == returns[1] < 15  # it always goes the same way, and the pole falls
