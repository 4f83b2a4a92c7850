from __future__ import annotations

import numpy as np

import launchpad as lp
from examples.systems.big_dl import claims
from examples.systems.big_dl.algorithm import FORWARD_BACKWARD, Task
from examples.systems.big_dl.driver import Trained
from tests.examples.conftest import assert_refused


def test_checks_refuse_what_is_nearly_right() -> None:
    def trained(parameters: list[float], made: int = 16, attempt: int = 1) -> Trained:
        return Trained(np.array(parameters), [16, made], [1, attempt])

    call = lp.edges.EdgeStats(
        "driver-0", "executor-0", "execute", 2, 2, 0, 0, 0, 100, 10, 0, 0, (), is_exact=True
    )
    right, off = trained([1.0, 2.0]), trained([1.0, 2.0 + 1e-15])
    deadly = [Task(FORWARD_BACKWARD, 5, executor=1)]
    claims.check_kills(trained([1.0, 2.0], 8, 2), right, deadly, 4)
    claims.check_dispatches({None: 4, 4: 0.5}, executors=2)

    assert_refused(
        lambda: claims.check_parameters({1: right}, np.array([1.0, 2.0 + 2e-12])),
        lambda: claims.check_parameters({1: right, 2: off}, np.array([1.0, 2.0])),
        lambda: claims.check_bytes(lp.edges.Edges((call,)), 2, 100),
        lambda: claims.check_dispatches({None: 4, 4: 4}, executors=2),
        lambda: claims.check_kills(trained([1.0, 2.0], 8, 1), right, deadly, 4),
        lambda: claims.check_kills(trained([1.0, 2.0], 9, 2), right, deadly, 4),
        lambda: claims.check_kills(off, right, [], 4),
    )
