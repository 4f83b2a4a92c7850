from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import launchpad as lp
from examples._shared.logical_time import Event, idle, replay
from examples.systems.gpipe import claims
from examples.systems.gpipe.algorithm import cut, schedule
from examples.systems.gpipe.oracle import Trained, best_of_all_cuts
from examples.systems.gpipe.program import make_program
from examples.systems.gpipe.stage import Batch
from examples.systems.gpipe.training import Run, Training
from tests.examples.conftest import noise


@pytest.fixture
def training() -> Training:
    return Training(noise(200), steps=3)


def batch(trace: Sequence[Event] = (), gradient: float = 0.0) -> Batch:
    return Batch(np.full(2, gradient), np.zeros(2), peak=0, trace=list(trace), waited=0.0)


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
    claims.check_bubble({Run(4, True): traces(schedule(4))}, stages=2)

    with pytest.raises(ArithmeticError, match="M=4 1/2"):
        claims.check_bubble({Run(4, True): traces(one_by_one)}, stages=2)


def test_checks_refuse_gradients_that_differ_a_little() -> None:
    alone, killed = Trained(np.zeros(2), np.zeros(2)), Run(4, True, is_disturbed=True)
    claims.check_equal({Run(1, True): [batch()]}, alone, stages=1)
    claims.check_killed({Run(4, True): [batch()], killed: [batch()]}, Run(4, True), [2])

    with pytest.raises(ArithmeticError, match=r"at most 2\.0e-12 apart"):
        claims.check_equal({Run(1, True): [batch(gradient=2e-12)]}, alone, stages=1)
    off = {Run(4, True): [batch()], killed: [batch(gradient=1e-15)]}
    with pytest.raises(ArithmeticError, match="a killed stage changes no bit"):
        claims.check_killed(off, Run(4, True), [2])


def test_stages_go_on_after_the_newest_batch_that_all_have_saved(
    training: Training, tmp_path: Path
) -> None:
    runs = [Run(4, True)]
    whole = lp.run(make_program(training, runs, 3), "test_mt", state=tmp_path, timeout_s=60)
    saved = sorted((tmp_path / "stage-1").glob("state-*"))
    saved[-1].unlink()

    again = lp.run(make_program(training, runs, 3), "test_mt", state=tmp_path, timeout_s=60)

    assert len(saved) == 2
    for [[last], _], [[expected], _] in zip(again["stage"], whole["stage"], strict=True):
        assert last.gradient.tobytes() == expected.gradient.tobytes()
        assert last.parameters.tobytes() == expected.parameters.tobytes()
