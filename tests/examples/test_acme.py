from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import launchpad as lp
from examples._shared import environments
from examples._shared.networks import Dense
from examples.systems.acme import algorithm, claims
from examples.systems.acme.agents import DQN, Impala, vtrace
from examples.systems.acme.algorithm import Actor, Learner, Record, Result, Steps, Variables
from examples.systems.acme.alone import LocalReplay, run_alone
from examples.systems.acme.oracle import chances
from examples.systems.acme.oracle import vtrace as vtrace_by_definition
from examples.systems.acme.program import make_program
from examples.systems.acme.workers import SavedLearner
from tests.examples.conftest import assert_refused

POLE = environments.measure("CartPole-v1")


def agent_of(name: str) -> Any:
    if name == "dqn":
        return DQN(POLE, Dense((4, 8, 2)))
    return Impala(POLE, Dense((4, 8, 3)), item_length=8)


def record_of(agent: Any, step: int = 100) -> Record:
    """A batch of noise in which some episodes end, and its gradient for a target of the same parameters."""
    rng = np.random.default_rng(step)
    shape = agent.batch_size, agent.item_length
    is_last = rng.random(shape) < 0.3
    observations = rng.normal(size=(shape[0], shape[1] + 1, 4))
    batch = Steps(
        observation=observations[:, :-1],
        action=rng.integers(2, size=shape),
        reward=rng.normal(size=shape),
        next_observation=np.where(
            is_last[..., np.newaxis], rng.normal(size=(*shape, 4)), observations[:, 1:]
        ),
        discount=np.where(is_last, rng.random(shape) < 0.5, 1.0),
        is_last=is_last,
        chance=rng.uniform(0.2, 0.9, shape),
        version=np.full(shape, step),
    )
    parameters = agent.network.first_parameters(step)
    return Record(step, parameters, batch, agent.gradient(parameters, parameters, batch))


def result_of(*records: Record) -> Result:
    agent = agent_of("dqn")
    learner = Learner(agent, 0, 0)
    learner.records = list(records)
    learner.versions = [Variables(records[0].parameters, 0)] * 2
    return Result(learner, 0, LocalReplay(agent, 0).table.info())


@pytest.mark.parametrize("name", ["dqn", "impala"])
def test_the_gradient_of_a_learner_is_that_of_the_paper_s_loss_and_no_other_passes(
    name: str,
) -> None:
    agent = agent_of(name)
    first, second = record_of(agent), record_of(agent, 200)
    wrong = second._replace(gradient=1.01 * second.gradient)

    claims.check_gradients(name, agent, result_of(first, second))

    assert_refused(lambda: claims.check_gradients(name, agent, result_of(first, wrong)))


def test_dqn_without_a_target_network_is_refused() -> None:
    agent = agent_of("dqn")
    first, later = record_of(agent), record_of(agent, 125)
    gradient = agent.gradient(later.parameters, first.parameters, later.batch)

    claims.check_gradients("dqn", agent, result_of(first, later._replace(gradient=gradient)))

    assert_refused(lambda: claims.check_gradients("dqn", agent, result_of(first, later)))


def test_v_trace_is_its_definition_also_where_episodes_end() -> None:
    rng = np.random.default_rng(0)
    batch = record_of(agent_of("impala")).batch
    values = rng.normal(size=batch.reward.shape)
    # The next observation of a step is the observation of the step after it.
    following = np.append(values[:, 1:], rng.normal(size=(len(values), 1)), axis=1)
    next_values = np.where(batch.is_last, rng.normal(size=values.shape), following)
    ratios = rng.lognormal(size=values.shape)

    gains = vtrace(values, next_values, ratios, batch)

    targets, advantages = vtrace_by_definition(values, next_values, ratios, batch)
    assert values + gains == pytest.approx(targets, abs=1e-12)
    assert gains == pytest.approx(advantages, abs=1e-12)


def test_chances_that_actors_note_wrong_are_refused() -> None:
    agent = agent_of("impala")
    record, other = record_of(agent), record_of(agent, 200)
    right = record.batch._replace(chance=chances(agent, record.parameters, record.batch))
    older = other.batch._replace(version=np.full(other.batch.version.shape, 1))
    good = result_of(record._replace(batch=right), other._replace(batch=older))

    claims.check_chances("impala", agent, good)

    assert_refused(
        lambda: claims.check_chances("impala", agent, result_of(record)),
        lambda: claims.check_chances("impala", agent, result_of(record._replace(batch=right))),
    )


@pytest.mark.parametrize(
    ("name", "n_actions"), [("CartPole-v1", 2), ("Acrobot-v1", 3), ("Pendulum-v1", 5)]
)
def test_an_environment_needs_only_its_name_also_with_continuous_actions(
    name: str, n_actions: int
) -> None:
    environment = environments.measure(name)
    agent = DQN(environment, Dense((environment.n_inputs, 8, environment.n_actions)))

    learner = run_alone(agent, 4, seed=0).learner

    assert environment.n_actions == n_actions
    assert [each.step for each in learner.versions[:4]] == [0, 1, 2, 3]
    assert np.abs(learner.records[0].batch.observation).max() < 10
    assert np.abs(learner.records[0].batch.reward).max() <= 11


def test_one_process_and_a_program_play_the_same_first_steps() -> None:
    agent = replace(agent_of("dqn"), item_length=2)
    table = lp.replay.Table.queue("steps", 50)
    program = lp.Program("acting")
    replay = program.add_node(lp.ReplayNode([table]), label="replay")
    program.add_node(lp.PyNode(act_for_a_while, agent, replay), label="actor")
    local = LocalReplay(agent, 0)

    of_program = lp.run(program, "local_mt")["actor"][0]

    act_for_a_while(agent, local)
    alone = [item.data for item in local.table.items()]
    assert len(of_program) == len(alone[:10])
    for one, other in zip(of_program, alone, strict=False):
        assert all(np.array_equal(*pair) for pair in zip(one, other, strict=True))


def act_for_a_while(agent: Any, experience: Any) -> list[Steps]:
    """Play two episodes, and return the first items of experience."""
    variables = Variables(agent.network.first_parameters(0), 0)
    actor = Actor(agent, variables, experience, seed=3)
    made = agent.environment.make(3)
    for _ in range(2):
        algorithm.run_episode(made, actor)
    if isinstance(experience, LocalReplay):
        return []
    return [sample.data for sample in experience.sample("steps", 10)]


def test_a_learner_goes_on_from_what_it_has_published(tmp_path: Path) -> None:
    agent = agent_of("dqn")
    experience = LocalReplay(agent, 0)
    for _ in range(200):
        item = record_of(agent, 1).batch
        experience.insert(Steps(*(field[0] for field in item)), {algorithm.TABLE: 1.0})
    with lp.testing.worker("learner", state=tmp_path):
        first = SavedLearner(agent, experience, 0, 60, None)
        first.run()
    assert first.get_variables().step == 50

    with lp.testing.worker("learner", state=tmp_path, attempt=2):
        second = SavedLearner(agent, experience, 0, 60, None)

    assert second.get_variables().step == 50
    assert np.array_equal(second.get_variables().parameters, first.get_variables().parameters)
    assert second.run().began_at == 50


def test_the_graph_has_as_many_actors_as_are_wanted() -> None:
    program = make_program(agent_of("dqn"), steps=10, n_actors=5)

    assert len(program.groups["actor"]) == 5


def test_checks_refuse_what_is_not_so() -> None:
    agent = agent_of("dqn")
    record = record_of(agent)
    run = result_of(record)
    info = replace(run.table, inserts=200, samples=1000, diff=2200, lowest_diff=1744)
    good = replace(info, highest_diff=2256)
    killed = run._replace(began_at=50)
    unsaved = record._replace(batch=record.batch._replace(version=record.batch.version + 1))
    of_unsaved = result_of(unsaved)._replace(began_at=50)
    claims.check_table("dqn", agent, run._replace(table=good))
    claims.check_killed("dqn", killed, 60)
    assert_refused(
        lambda: claims.check_solved("alone", agent, 475.0, run),
        lambda: claims.check_solved("alone", agent, 0.0, run),  # no better than untrained
        lambda: claims.check_killed("dqn", killed, 80),
        lambda: claims.check_killed("dqn", run, 10),  # before anything was saved
        lambda: claims.check_killed("dqn", of_unsaved, 60),
        lambda: claims.check_table(
            "dqn", agent, run._replace(table=replace(good, lowest_diff=1743))
        ),
        lambda: claims.check_table(
            "dqn", agent, run._replace(table=replace(good, highest_diff=2257))
        ),
        lambda: claims.check_table("dqn", agent, run._replace(table=replace(good, diff=2199))),
    )
