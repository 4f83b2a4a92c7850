"""Checks of the claims about an agent, on what a run has returned."""

import numpy as np

from examples._shared.checks import check
from examples.systems.acme.algorithm import Actor, Agent, Result, Variables, run_episode
from examples.systems.acme.oracle import LOSSES, chances

EPISODES = 40
TARGET_PERIOD = 50
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


def best_of(agent: Agent, run: Result) -> tuple[Variables, list[float]]:
    """Return the version of a run that plays best, and the mean returns of all versions.

    Three episodes of each choose three versions, which are evaluated once more.
    """
    versions = run.learner.versions
    curve = [play(agent, each, each.step, 3) for each in versions]
    candidates = [versions[1 + i] for i in np.argsort(curve[1:])[-3:]]
    means = [play(agent, each, each.step + 1, EPISODES // 2) for each in candidates]
    return candidates[int(np.argmax(means))], curve


def check_solved(how: str, agent: Agent, goal: float, run: Result) -> list[float]:
    """Check that the best version is good in fresh episodes. Return the curve of learning."""
    best, curve = best_of(agent, run)
    n_steps = run.table.inserts * agent.item_length
    returns = " ".join(f"{each:.0f}" for each in curve)
    print(f"{n_steps} steps of actors; mean returns as it learned: {returns}", flush=True)
    mean = play(agent, best, 0, EPISODES)
    untrained = play(agent, run.learner.versions[0], 0, EPISODES)
    check(
        mean >= goal and mean > untrained,
        f"{how}: the mean return of {EPISODES} fresh episodes is at least {goal:g}",
        f"{mean:.1f}; {untrained:.1f} before training, {agent.environment.random_return:.1f} at random",
    )
    return curve


def check_gradients(how: str, agent: Agent, run: Result) -> None:
    """Check the gradients that the learner followed, by differences of the loss as the paper defines it."""
    rng = np.random.default_rng(0)
    errors = []
    by_step = {record.step: record.parameters for record in run.learner.records}
    for record in run.learner.records:
        target = by_step.get(record.step // TARGET_PERIOD * TARGET_PERIOD)
        if target is not None:
            loss = LOSSES[agent.name](agent, record, target)
            direction = rng.normal(size=record.gradient.size)
            change = DIFFERENCE * direction
            rise = loss(record.parameters + change) - loss(record.parameters - change)
            error = rise / (2 * DIFFERENCE) - record.gradient @ direction
            errors.append(float(abs(error) / np.linalg.norm(record.gradient)))
    check(
        len(errors) > 1 and max(errors) < 1e-4,
        f"{how}: the gradients that the learner followed are those of the paper's loss, to 1e-4",
        f"{max(errors):.0e}, of {len(errors)} gradients",
    )


def check_chances(how: str, agent: Agent, run: Result) -> None:
    """Check the chances of actions, as actors noted them, by the variables that they acted by."""
    errors = []
    ratios = []
    known = {record.step: record.parameters for record in run.learner.records}
    for record in run.learner.records:
        batch = record.batch
        ratios += list((chances(agent, record.parameters, batch) / batch.chance).ravel())
        for version in known.keys() & set(batch.version.ravel()):
            difference = np.abs(chances(agent, known[version], batch) - batch.chance)
            errors += list(difference[batch.version == version])
    check(
        len(errors) > 0 and max(errors) < 1e-9 and max(ratios) > 1,
        f"{how}: actors note the chances of their actions right, and the learner has newer policies",
        f"to {max(errors, default=1):.0e} in {len(errors)} steps; the learner's chances are"
        f" {min(ratios):.2f} to {max(ratios):.2f} times those",
    )


def check_table(how: str, agent: Agent, run: Result) -> None:
    """Check the ratio of samples to inserts, which the table has noted after each insert and each sample."""
    ratio, least, most = BOUNDS[agent.name]
    table = run.table
    check(
        least <= table.lowest_diff <= table.highest_diff <= most
        and table.diff == ratio * table.inserts - table.samples,
        f"{how}: at every moment, {ratio} · inserts - samples is from {least} to {most}",
        f"{table.lowest_diff:.0f} to {table.highest_diff:.0f}, in {table.inserts} inserts and"
        f" {table.samples} samples",
    )


def check_killed(how: str, run: Result, kill_at: int) -> None:
    """Check that a learner that was killed went on from what it had saved, and actors acted by that."""
    saved = (kill_at - 1) // SAVE_PERIOD * SAVE_PERIOD
    versions = {
        int(each) for record in run.learner.records for each in record.batch.version.ravel()
    }
    check(
        run.began_at == saved > 0 and not any(version % SAVE_PERIOD for version in versions),
        f"{how}: a killed learner goes on from what is saved, and actors act by what is saved",
        f"killed after step {kill_at}, went on from {run.began_at}, ended after step {run.learner.steps}",
    )
