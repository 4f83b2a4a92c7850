"""Checks of the claims about an agent, on what its runs have returned."""

from collections.abc import Sequence

import numpy as np

from examples._shared.checks import check
from examples.systems.acme.algorithm import Actor, Agent, Variables, run_episode
from examples.systems.acme.oracle import LOSSES, chances
from examples.systems.acme.workers import Result

EPISODES = 40
TARGET_PERIOD = 100
SAVE_PERIOD = 25
DIFFERENCE = 1e-6
BOUNDS = {"dqn": (16, 16 * 125 - 256, 16 * 125 + 256), "impala": (1, 0, 8)}
"""For each agent: samples per insert, and the bounds of what inserts allow beyond the samples so far."""


def play(agent: Agent, variables: Variables, seed: int, episodes: int) -> float:
    """Return the mean return of episodes by the best actions."""
    made = agent.environment.make(1_000_000 + seed)
    actor = Actor(agent, variables)
    returns = [run_episode(made, actor) for _ in range(episodes)]
    return float(np.mean(returns)) * agent.environment.reward_scale


def curve_of(agent: Agent, run: Result) -> list[float]:
    """Return the mean returns of a run's versions, and print them."""
    curve = [play(agent, each, each.step, 3) for each in run.versions]
    n_steps = run.table.inserts * agent.item_length
    returns = " ".join(f"{each:.0f}" for each in curve)
    print(f"{n_steps} steps of actors; mean returns as it learned: {returns}", flush=True)
    return curve


def best_of(agent: Agent, run: Result, curve: Sequence[float]) -> Variables:
    """Return the best version. The three with the highest points of the curve are evaluated once more."""
    candidates: list[Variables] = [run.versions[1 + i] for i in np.argsort(curve[1:])[-3:]]
    means = [play(agent, each, each.step + 1, EPISODES // 2) for each in candidates]
    return candidates[int(np.argmax(means))]


def check_solved(how: str, agent: Agent, goal: float, runs: Sequence[Result]) -> list[float]:
    """Check that the best versions are good in fresh episodes. Return the curve of the first run."""
    curves = [curve_of(agent, run) for run in runs]
    best = [best_of(agent, run, curve) for run, curve in zip(runs, curves, strict=True)]
    means = [play(agent, each, 0, EPISODES) for each in best]
    untrained = [play(agent, run.versions[0], 0, EPISODES) for run in runs]
    shown = [" ".join(f"{each:.1f}" for each in returns) for returns in (means, untrained)]
    check(
        min(means) >= goal and all(np.greater(means, untrained)),
        f"{how}: the mean return of {EPISODES} fresh episodes is at least {goal:g} for each seed",
        f"{shown[0]}; {shown[1]} before training, {agent.environment.random_return:.1f} at random",
    )
    return curves[0]


def check_gradients(name: str, agent: Agent, runs: Sequence[Result]) -> None:
    """Check the gradients that learners followed, by differences of the loss as the paper defines it."""
    rng = np.random.default_rng(0)
    errors = []
    for run in runs:
        by_step = {record.step: record.parameters for record in run.records}
        for record in run.records:
            target = by_step.get(record.step // TARGET_PERIOD * TARGET_PERIOD)
            if target is not None:
                loss = LOSSES[name](agent, record, target)
                direction = rng.normal(size=record.gradient.size)
                change = DIFFERENCE * direction
                rise = loss(record.parameters + change) - loss(record.parameters - change)
                error = rise / (2 * DIFFERENCE) - record.gradient @ direction
                errors.append(float(abs(error) / np.linalg.norm(record.gradient)))
    check(
        len(errors) > len(runs) and max(errors) < 1e-4,
        f"{name}: the gradients that learners followed are those of the paper's loss, to 1e-4",
        f"{max(errors):.0e}, of {len(errors)} gradients",
    )


def check_chances(agent: Agent, runs: Sequence[Result]) -> None:
    """Check the chances of actions, as actors noted them, by the variables that they acted by."""
    errors = []
    ratios = []
    for run in runs:
        known = {record.step: record.parameters for record in run.records}
        for record in run.records:
            batch = record.batch
            ratios += list((chances(agent, record.parameters, batch) / batch.chance).ravel())
            for version in known.keys() & set(batch.version.ravel()):
                difference = np.abs(chances(agent, known[version], batch) - batch.chance)
                errors += list(difference[batch.version == version])
    check(
        len(errors) > 0 and max(errors) < 1e-9 and max(ratios) > 1,
        "impala: actors note the chances of their actions right, and learners have newer policies",
        f"to {max(errors, default=1):.0e} in {len(errors)} steps; the learners' chances are"
        f" {min(ratios):.2f} to {max(ratios):.2f} times those",
    )


def check_table(name: str, runs: Sequence[Result]) -> None:
    """Check the ratio of samples to inserts, which tables have noted after each insert and each sample."""
    ratio, least, most = BOUNDS[name]
    tables = [run.table for run in runs]
    lowest = min(table.lowest_diff for table in tables)
    highest = max(table.highest_diff for table in tables)
    check(
        least <= lowest <= highest <= most
        and all(table.diff == ratio * table.inserts - table.samples for table in tables),
        f"{name}: at every moment, {ratio} · inserts - samples is from {least} to {most}",
        f"{lowest:.0f} to {highest:.0f}, in {sum(table.inserts for table in tables)} inserts and"
        f" {sum(table.samples for table in tables)} samples",
    )


def check_killed(name: str, kill_at: Sequence[int], run: Result) -> None:
    """Check that each attempt goes on from what the one before has saved."""
    saved = [(step - 1) // SAVE_PERIOD * SAVE_PERIOD for step in kill_at]
    versions = {int(each) for record in run.records for each in record.batch.version.ravel()}
    check(
        run.begun == [0, *saved] and not any(version % SAVE_PERIOD for version in versions),
        f"{name}: a killed learner goes on from what is saved, and actors act by what is saved",
        f"killed after steps {list(kill_at)}, went on from {run.begun[1:]}, ended after step"
        f" {run.versions[-1].step}",
    )
