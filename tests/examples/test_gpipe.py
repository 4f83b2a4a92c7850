from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import launchpad as lp
from examples._shared import networks
from examples._shared.digits import Digits
from examples._shared.logical_time import Event, idle, replay
from examples.gpipe import claims
from examples.gpipe.algorithm import Layers, cut, schedule
from examples.gpipe.oracle import Trained, best_of_all_cuts
from examples.gpipe.program import make_program
from examples.gpipe.stage import Batch
from examples.gpipe.training import Run, Training

WIDTHS = (64, 12, 8, 10)


@pytest.fixture
def training() -> Training:
    random = np.random.default_rng(0)
    return Training(Digits(random.random((200, 64)), random.integers(0, 10, 200)), steps=3)


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


@pytest.mark.parametrize("rematerializes", [False, True])
def test_gradients_of_a_chain_are_the_slope_of_the_loss(
    training: Training, rematerializes: bool
) -> None:
    whole, parameters = training.batch(0), networks.first_parameters(WIDTHS)
    first_end = 65 * 12
    below = Layers(WIDTHS[:2], parameters[:first_end], False, rematerializes)
    above = Layers(WIDTHS[1:], parameters[first_end:], True, rematerializes)
    parts = [whole[i : i + 16] for i in range(0, 64, 16)]
    direction = np.random.default_rng(1).normal(size=parameters.size)
    tiny = 1e-6

    for m, part in enumerate(parts):
        above.forward(m, below.forward(m, part.images))
    for m, part in enumerate(parts):
        below.backward(m, above.backward(m, part))

    losses = [
        networks.cross_entropy(
            networks.forward(WIDTHS, parameters + step * direction, whole.images)[-1], whole
        )[0]
        for step in (tiny, -tiny)
    ]
    gradient = np.concatenate([below.gradient, above.gradient]) / len(parts)
    assert gradient @ direction == pytest.approx((losses[0] - losses[1]) / (2 * tiny), rel=1e-6)


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


def test_check_refuses_a_gradient_that_differs_a_little() -> None:
    alone = Trained(np.zeros(2), np.zeros(2))
    claims.check_equal({Run(1, True): [batch()]}, alone, stages=1)

    with pytest.raises(ArithmeticError, match=r"at most 2\.0e-12 apart"):
        claims.check_equal({Run(1, True): [batch(gradient=2e-12)]}, alone, stages=1)


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


@pytest.mark.slow
def test_gpipe_computes_what_one_process_does_although_a_stage_is_killed(
    run_system, launch_type
) -> None:
    printed = run_system("gpipe", launch_type)

    for stages in (1, 2, 4):
        assert f"ok    K={stages}: gradients are those of one process" in printed
        assert f"ok    K={stages}: stages wait for (K-1)/(M+K-1)" in printed
    assert "M=1 3/4" in printed
    assert "M=8 3/11" in printed
    assert "ok    a killed stage changes no bit" in printed


@pytest.mark.slow
def test_gpipe_has_the_gradients_of_the_pipeline_of_torch(run_system) -> None:
    pytest.importorskip("torch")

    printed = run_system("gpipe", "local_mp", "--torch")

    assert "ok    torch's ScheduleGPipe has these gradients, too" in printed
