from __future__ import annotations

import numpy as np
import pytest

from examples.es.cartpole import PARAMETERS
from examples.es.evolution import centred_ranks
from examples.es.program import check_return


def test_ranks_go_from_minus_a_half_to_a_half_and_those_of_equals_are_equal() -> None:
    ranks = centred_ranks(np.array([[3.0, 1000.0], [-5.0, 4.0], [5.0, 6.0]]))

    assert ranks == pytest.approx(np.array([[-0.3, 0.5], [-0.5, -0.1], [0.1, 0.3]]))
    assert np.array_equal(centred_ranks(np.full((4, 2), 500.0)), np.zeros((4, 2)))


def test_check_refuses_a_policy_that_lets_the_pole_fall() -> None:
    with pytest.raises(ArithmeticError, match="at least 475 of 500 steps"):
        check_return(np.zeros(PARAMETERS))
