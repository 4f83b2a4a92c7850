from __future__ import annotations

import numpy as np
import pytest

from examples.es.cartpole import PARAMETERS, CartPole
from examples.es.evolution import centred_ranks, estimate_gradient, perturbation, train
from examples.es.program import Evaluator, check_return, digest, split


def test_ranks_go_from_minus_a_half_to_a_half() -> None:
    ranks = centred_ranks(np.array([[3.0, 1000.0], [-5.0, 4.0], [5.0, 6.0]]))

    assert ranks == pytest.approx(np.array([[-0.3, 0.5], [-0.5, -0.1], [0.1, 0.3]]))


def test_equal_returns_have_equal_ranks() -> None:
    assert np.array_equal(centred_ranks(np.full((4, 2), 500.0)), np.zeros((4, 2)))


def test_perturbation_depends_on_the_seed_alone() -> None:
    assert np.array_equal(perturbation(3), perturbation(3))
    assert not np.array_equal(perturbation(3), perturbation(4))


def test_gradient_points_uphill() -> None:
    uphill = np.array([1.0, -2.0, 0.0, 3.0])
    seeds = range(100)
    pairs = [(perturbation(s) @ uphill, -perturbation(s) @ uphill) for s in seeds]

    gradient = estimate_gradient(seeds, pairs)

    cosine = gradient @ uphill / np.linalg.norm(gradient) / np.linalg.norm(uphill)
    assert cosine > 0.9


@pytest.mark.parametrize("parts", [1, 3, 20])
def test_split_keeps_every_seed_in_order(parts: int) -> None:
    pieces = split(range(16), parts)

    assert len(pieces) == parts
    assert [seed for piece in pieces for seed in piece] == list(range(16))
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


def test_the_same_seed_plays_the_same_episode() -> None:
    parameters = perturbation(0)

    assert CartPole().play(parameters, 5) == CartPole().play(parameters, 5)


def test_parameters_are_the_same_to_the_last_bit_however_seeds_are_split() -> None:
    def evaluate_in_parts(parameters, seeds):
        evaluators = [Evaluator() for _ in range(3)]
        parts = zip(evaluators, split(seeds, 3), strict=True)
        return [pair for each, part in parts for pair in each.evaluate(parameters, part)]

    assert digest(train(evaluate_in_parts, 3)) == digest(train(Evaluator().evaluate, 3))


def test_check_refuses_a_policy_that_lets_the_pole_fall() -> None:
    with pytest.raises(ArithmeticError, match="for 475 of 500 steps"):
        check_return(np.zeros(PARAMETERS))
