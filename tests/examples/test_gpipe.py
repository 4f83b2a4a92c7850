from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import launchpad as lp
from examples._shared.logical_time import Event, idle, replay
from examples._shared.networks import Dense
from examples._shared.problem import Problem
from examples.systems.gpipe import claims
from examples.systems.gpipe.algorithm import cut, schedule
from examples.systems.gpipe.oracle import best_of_all_cuts
from examples.systems.gpipe.program import make_program
from examples.systems.gpipe.stage import Batch, Run
from tests.examples.conftest import noise


@pytest.fixture
def problem() -> Problem:
    network = Dense((64, 24, 16, 12, 10))
    return Problem(noise(200), network, workers=1, steps=3, slice_size=64, learning_rate=0.1)


def batch(trace: Sequence[Event] = (), parameter: float = 0.0, attempt: int = 2) -> Batch:
    return Batch(np.full(2, parameter), 0.0, 0, list(trace), attempt)


def test_the_cut_is_the_most_even_one_of_all() -> None:
    random = np.random.default_rng(0)

    for _ in range(100):
        costs = random.integers(1, 10, random.integers(1, 9)).tolist()
        for stages in range(1, len(costs) + 1):
            assert cut(costs, stages) == best_of_all_cuts(costs, stages)


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="2 layers make 1 to 2 stages, not 3"):
        cut([5, 5], 3)


def test_an_event_starts_when_the_one_before_it_and_the_one_that_sent_its_message_have_ended() -> (
    None
):
    sender = [Event("wait", 0), Event("send", 0)]
    receiver = [Event("send", 0, received_from=0), Event("alone", 0)]

    spans = replay([sender, receiver], lambda worker, kind: 3 if kind == "wait" else 1)

    assert [tuple(span) for span in spans[1]] == [(4, 5), (5, 6)]
    assert idle(spans) == Fraction(12 - 6, 12)


def test_replay_names_the_events_whose_messages_were_never_sent() -> None:
    with pytest.raises(ValueError, match=r"Event\(kind='a', item=0, received_from=1\) of worker 0"):
        replay([[Event("a", 0, received_from=1)], [Event("b", 0)]])


def test_check_refuses_a_pipeline_that_lets_one_micro_batch_through_after_the_other() -> None:
    def traces(order: list[tuple[str, int]]) -> list[Batch]:
        first = [Event(kind, m, 1 if kind == "backward" else None) for kind, m in order]
        second = [Event(kind, m, 0 if kind == "forward" else None) for kind, m in order]
        return [batch(first), batch(second)]

    one_by_one = [(kind, m) for m in range(4) for kind in ("forward", "backward")]
    claims.check_bubble({Run(4): traces(schedule(4))}, stages=2)

    with pytest.raises(ArithmeticError, match="M=4 1/2"):
        claims.check_bubble({Run(4): traces(one_by_one)}, stages=2)


def test_checks_refuse_parameters_that_differ_a_little() -> None:
    claims.check_equal({Run(1): [batch()]}, np.zeros(2), stages=1)
    claims.check_killed([batch()], [batch()])

    with pytest.raises(ArithmeticError, match=r"at most 2\.0e-12 apart"):
        claims.check_equal({Run(1): [batch(parameter=2e-12)]}, np.zeros(2), stages=1)
    with pytest.raises(ArithmeticError, match="a killed stage changes no bit"):
        claims.check_killed([batch(parameter=1e-15)], [batch()])
    with pytest.raises(ArithmeticError, match="a killed stage changes no bit"):
        claims.check_killed([batch(attempt=1)], [batch()])


def test_micro_batches_of_unequal_sizes_are_refused_when_the_program_is_made(
    problem: Problem,
) -> None:
    with pytest.raises(ValueError, match="64 rows can't be cut into 5 micro-batches of one size"):
        make_program(problem, 2, [Run(4), Run(5)])


def test_layers_may_be_cut_by_costs_that_were_measured(problem: Problem) -> None:
    program = make_program(problem, 2, [Run(1)], costs=[1, 1, 1, 9])

    last = lp.run(program, "test_mt", timeout_s=60)["stage"][1]

    assert len(last[0].parameters) == 13 * 10  # one layer, of 12 inputs and a bias


def test_stages_go_on_after_the_newest_batch_that_all_have_saved(
    problem: Problem, tmp_path: Path
) -> None:
    whole = lp.run(make_program(problem, 3, [Run(4)]), "test_mt", state=tmp_path, timeout_s=60)
    saved = sorted((tmp_path / "stage-1").glob("state-*"))
    saved[-1].unlink()

    again = lp.run(make_program(problem, 3, [Run(4)]), "test_mt", state=tmp_path, timeout_s=60)

    assert len(saved) == 2
    for [last], [expected] in zip(again["stage"], whole["stage"], strict=True):
        assert last.parameters.tobytes() == expected.parameters.tobytes()


@pytest.mark.slow
def test_the_pipeline_of_torch_learns_the_same(problem: Problem) -> None:
    pytest.importorskip("torch")
    from tests.helpers import torch_pipeline

    program = torch_pipeline.make_program(problem, micro_batches=4, stages=2)
    stages = lp.run(program, "local_mp", preload=torch_pipeline.PRELOAD, timeout_s=120)["stage"]

    np.testing.assert_allclose(np.concatenate(stages), problem.train_alone(), atol=1e-12)
