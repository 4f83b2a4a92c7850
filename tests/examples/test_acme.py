from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from examples._shared import networks
from examples.systems.acme import claims, impala, stopping
from examples.systems.acme.algorithm import Variables
from examples.systems.acme.alone import LocalCounter
from examples.systems.acme.evaluator import Evaluated, Evaluation, mean_return
from examples.systems.acme.learner import Begun, SavedLearner
from examples.systems.acme.policy import SCALE, WIDTHS
from examples.systems.acme.replay import LocalReplay
from examples.systems.acme.variable_client import Age, VariableClient
from examples.systems.acme.vtrace import vtrace
from tests.examples.conftest import assert_refused

VARIABLES = Variables(networks.first_parameters(WIDTHS), 0, 0.0)


def test_impala_s_gradient_is_that_of_its_loss() -> None:
    rng = np.random.default_rng(0)
    critic = networks.first_parameters(impala.VALUE_WIDTHS, 1)
    parameters = np.concatenate([networks.first_parameters(WIDTHS, 1), critic])
    actions, chances = rng.integers(0, 2, 5), rng.uniform(0.2, 0.9, 5)
    observations = rng.normal(size=(6, 4)) * SCALE
    unroll = impala.Unroll(observations, actions, np.ones(5), np.ones(5), chances)

    def parts(at: Any) -> tuple[Any, Any]:
        inputs = observations / SCALE
        scores = networks.forward(WIDTHS, at, inputs[:-1])[-1]
        values = networks.forward(impala.VALUE_WIDTHS, at[impala.N_POLICY :], inputs)[-1]
        return impala.softmax(scores), values[:, 0]

    likely, values = parts(parameters)
    rewards = np.full(5, 1 - impala.DISCOUNT)
    discounts = np.full(5, impala.DISCOUNT)
    ratios = likely[range(5), actions] / chances
    targets, advantages = vtrace(values, rewards, discounts, ratios)

    def loss(at: Any) -> float:
        likely, values = parts(at)
        of_actions = -np.log(likely[range(5), actions]) @ advantages
        entropy = -(likely * np.log(likely)).sum()
        of_values = ((values[:-1] - targets) ** 2).sum() / 2
        return float(of_actions - impala.ENTROPY * entropy + of_values) / impala.UNROLL

    direction = rng.normal(size=parameters.size)
    numeric = (loss(parameters + 1e-6 * direction) - loss(parameters - 1e-6 * direction)) / 2e-6
    assert impala.gradient(parameters, unroll) @ direction == pytest.approx(numeric, rel=1e-6)


def write_episodes(replay: lp.replay.ReplayClient | LocalReplay) -> list[lp.replay.Transition]:
    """One that ends by a fall, one that is cut off: all transitions of three steps and fewer."""
    writer = replay.n_step_writer("transitions", 3, 0.5)
    for discount in (0.0, 1.0):
        writer.add_first(np.zeros(4))
        for step in range(1, 6):
            is_last = step == 5
            observation = np.full(4, float(step))
            writer.add(step % 2, step / 8, observation, discount if is_last else 1.0, is_last)
    if isinstance(replay, LocalReplay):
        return [item.data for item in replay.table.items()]
    assert isinstance(writer, lp.replay.NStepWriter)
    writer.flush()
    return [sample.data for sample in replay.sample("transitions", 14)]


def test_the_writer_of_one_process_makes_the_transitions_of_the_library_s() -> None:
    program = lp.Program("writing")
    table = lp.replay.Table.queue("transitions", 20)
    replay = program.add_node(lp.ReplayNode([table]), label="replay")
    program.add_node(lp.PyNode(write_episodes, replay), label="writer")

    of_library = lp.run(program, "local_mt")["writer"][0]

    alone = write_episodes(LocalReplay(seed=0))
    assert len(alone) == len(of_library) == 14
    for one, other in zip(alone, of_library, strict=True):
        assert all(np.array_equal(*pair) for pair in zip(one, other, strict=True))


class Steps:
    """A learner that only counts, to 60."""

    def __init__(self, experience: Any, seed: int) -> None:
        self.steps = 0

    def get_variables(self) -> Variables:
        return VARIABLES._replace(step=self.steps)

    def step(self) -> None:
        self.steps += 1
        if self.steps == 60:
            raise MemoryError

    def save(self) -> int:
        return self.steps

    def restore(self, saved: int) -> None:
        self.steps = saved


def test_a_learner_goes_on_from_what_it_has_published_and_each_step_is_counted_once(
    tmp_path: Path,
) -> None:
    counter: Any = LocalCounter()
    with lp.testing.worker("learner", state=tmp_path):
        first = SavedLearner(Steps, None, 0, counter)
        with pytest.raises(MemoryError):
            first.run()
    assert first.get_variables().step == 50
    counter.increment(learner_steps=-25)  # as if it had died between saving and counting

    with lp.testing.worker("learner", state=tmp_path, attempt=2):
        second = SavedLearner(Steps, None, 0, counter)

    assert second.get_variables().step == 50
    assert counter.get_counts() == {"learner_steps": 50}


def test_a_call_to_a_worker_that_stops_earlier_is_no_failure(monkeypatch) -> None:
    with lp.testing.worker("actor"):
        told = Timer(0.05, lp.stop_event().set)
        with stopping.until_stopped():
            told.start()
            raise lp.courier.WorkerFailed("the cacher has ended")
        told.join()

    monkeypatch.setattr(stopping, "STOP_S", 0.01)
    failed = pytest.raises(lp.courier.WorkerFailed)
    with lp.testing.worker("actor"), failed, stopping.until_stopped():
        raise lp.courier.WorkerFailed("the cacher has ended")


class Source:
    """Gives variables of these steps one after the other; None: what it has is stale."""

    def __init__(self, *steps: int | None) -> None:
        self._steps = iter(steps)

    def get_variables(self) -> Variables:
        step = next(self._steps)
        if step is None:
            raise lp.StaleError("too old")
        return VARIABLES._replace(step=step, given_at=0.0)


def test_stale_variables_are_waited_for_and_not_acted_by() -> None:
    with lp.testing.worker("actor"):
        client = VariableClient(Source(10, None, None, 35))

        client.take()

    assert client.newest.step == 35
    assert client.age.steps == 25
    assert client.age.is_monotone


def test_variables_that_go_back_are_noted() -> None:
    client = VariableClient(Source(10, 5))

    client.take()

    assert not client.age.is_monotone


class Episodes:
    """A loop whose episodes return these."""

    def __init__(self, *returns: int) -> None:
        self._returns = iter(returns)
        self.run_episode = self._returns.__next__


def test_an_evaluation_ends_as_soon_as_it_cannot_succeed() -> None:
    loops: list[Any] = [Episodes(500, 460, 500, 440), Episodes(500, 390)]

    assert [mean_return(loop, 4, wanted=475.0) for loop in loops] == [475.0, 445.0]


def test_checks_refuse_what_is_not_so() -> None:
    counts = {"actor_steps": 9.0, "learner_steps": 175.0}
    good = Evaluation(175, 500.0, counts)
    worse = Evaluation(200, 500.0, counts | {"learner_steps": 150.0})
    run = Evaluated(VARIABLES, [good, worse], Age())
    begun = [Begun(1, 0), Begun(2, 50)]
    info = LocalReplay(0).info()["transitions"]
    offset = info.min_diff + (info.max_diff - info.min_diff) / 2
    age = Age(oldest=5.0, youngest=-1.0)
    claims.check_age("dqn", [age, age])
    learned = run._replace(variables=VARIABLES._replace(step=25))
    queue = lp.QueueStats(110, 103, 7, 3, 100, 0, 0, 0, 0, 8, (), False)
    claims.check_queue([queue], [learned])
    assert_refused(
        lambda: claims.check_solved("alone", 475.0, [run]),
        lambda: claims.check_killed(begun, [60], run),
        lambda: claims.check_killed(begun, [80], run._replace(curve=[good])),
        lambda: claims.check_age("dqn", [age, age._replace(oldest=5.1)]),
        lambda: claims.check_age("dqn", [age, age._replace(youngest=-1.1)]),
        lambda: claims.check_age("dqn", [age, age._replace(is_monotone=False)]),
        lambda: claims.check_ratio([replace(info, lowest_diff=offset - 1025, highest_diff=offset)]),
        lambda: claims.check_ratio([replace(info, lowest_diff=offset, highest_diff=offset + 1025)]),
        lambda: claims.check_queue([replace(queue, taken=99, handled=96)], [learned]),
        lambda: claims.check_queue([replace(queue, taken=104, returned=1)], [learned]),
        lambda: claims.check_queue([replace(queue, most_waiting=9)], [learned]),
    )
