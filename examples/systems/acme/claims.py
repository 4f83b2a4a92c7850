"""Checks of the claims about an agent, on what the workers of a run have returned."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

import launchpad as lp
from examples._shared.checks import check
from examples.systems.acme.algorithm import EnvironmentLoop
from examples.systems.acme.builders import QUEUE_SIZE
from examples.systems.acme.evaluator import Evaluated, mean_return
from examples.systems.acme.impala import BATCH
from examples.systems.acme.learner import SAVE_EVERY, Begun
from examples.systems.acme.oracle import vtrace_by_definition
from examples.systems.acme.policy import GreedyActor
from examples.systems.acme.replay import ERROR_BUFFER, MIN_SIZE, SAMPLES_PER_INSERT
from examples.systems.acme.variable_client import MOST_APART_S, STALE_S, Age
from examples.systems.acme.vtrace import vtrace

FRESH_EPISODES = 30
FRESH_SEED = 2_000_000


def check_solved(how: str, claimed: float, runs: Sequence[Evaluated]) -> None:
    """Check that the policy balances the pole in episodes that are new to it and to the evaluator."""
    loops = [EnvironmentLoop(GreedyActor(run.variables), FRESH_SEED) for run in runs]
    returns = [mean_return(loop, FRESH_EPISODES) for loop in loops]
    steps = " ".join(f"{run.curve[-1].counts['actor_steps']:.0f}" for run in runs)
    check(
        min(returns) >= claimed,
        f"{how}: the mean return of {FRESH_EPISODES} fresh episodes is at least {claimed:g} for each seed",
        f"{' '.join(f'{each:.1f}' for each in returns)}, after {steps} steps",
    )


def check_ratio(tables: Sequence[lp.replay.TableInfo]) -> None:
    """Check the ratio of samples to inserts, which tables have noted after each insert and each sample."""
    offset = SAMPLES_PER_INSERT * MIN_SIZE
    buffer = ERROR_BUFFER
    lowest = min(table.lowest_diff for table in tables) - offset
    highest = max(table.highest_diff for table in tables) - offset
    check(
        -buffer <= lowest and highest <= buffer,
        f"each transition is sampled {SAMPLES_PER_INSERT:g} times on average: at every moment the number of"
        f" samples is within {buffer} of {SAMPLES_PER_INSERT:g} · (inserts - {MIN_SIZE})",
        f"{lowest:+.0f} to {highest:+.0f}, in {sum(table.inserts for table in tables)} inserts and"
        f" {sum(table.samples for table in tables)} samples",
    )


def check_queue(queues: Sequence[lp.QueueStats], runs: Sequence[Evaluated]) -> None:
    """Check that the learner took each unroll once at most, and that actors wait for a slower learner."""
    learned = [BATCH * run.variables.step for run in runs]
    most = max(each.most_waiting for each in queues)
    check(
        all(
            n <= each.taken == each.handled + each.in_hand
            for n, each in zip(learned, queues, strict=True)
        )
        and most <= QUEUE_SIZE,
        f"each unroll is learned from at most once, and at most {QUEUE_SIZE} unrolls wait",
        f"the variables have learned from {sum(learned)}; {sum(each.taken for each in queues)} were taken ="
        f" {sum(each.handled for each in queues)} handled + {sum(each.in_hand for each in queues)} in hand;"
        f" at most {most} waited",
    )


def check_age(name: str, ages: Sequence[Age]) -> None:
    """Check the age of variables: by the hosts' clocks none came before the learner gave it."""
    oldest = max(age.oldest for age in ages)
    youngest = min(age.youngest for age in ages)
    check(
        youngest >= -MOST_APART_S and oldest <= STALE_S and all(age.is_monotone for age in ages),
        f"{name}: variables are at most {STALE_S:g} s old when an actor asks for them, and never of an"
        " earlier step than before",
        f"at most {oldest:.2f} s, in {sum(age.times for age in ages)} answers, and on arrival at least"
        f" {youngest:.3f} s; replaced after at most {max(age.steps for age in ages)} steps",
    )


def check_killed(attempts: Sequence[Begun], crashes: Sequence[int], run: Evaluated) -> None:
    """Check that each attempt goes on from what the one before has saved, and so do the counts."""
    saved = [(crash - 1) // SAVE_EVERY * SAVE_EVERY for crash in crashes]
    is_monotone = all(
        earlier.step <= later.step
        and all(later.counts[name] >= n for name, n in earlier.counts.items())
        for earlier, later in pairwise(run.curve)
    )
    check(
        [each.step for each in attempts] == [0, *saved] and is_monotone,
        f"a learner killed {len(crashes)} times goes on from what is saved, and no count decreases",
        f"killed after steps {list(crashes)}, went on from {[each.step for each in attempts[1:]]}, ended with"
        f" {run.curve[-1].counts['learner_steps']:.0f} steps counted",
    )


def check_vtrace(cases: int = 100) -> None:
    """Check V-trace against its definition, on random unrolls, some of which end with the episode."""
    rng = np.random.default_rng(0)
    difference = 0.0
    for n in rng.integers(1, 33, cases):
        discounts = 0.99 * (rng.random(n) > 0.1)
        values = rng.normal(size=n + 1)
        rewards = rng.normal(size=n)
        ratios = rng.lognormal(size=n)
        computed = vtrace(values, rewards, discounts, ratios)
        defined = vtrace_by_definition(values, rewards, discounts, ratios)
        difference = max(
            difference,
            *(float(np.abs(a - b).max()) for a, b in zip(computed, defined, strict=True)),
        )
    check(
        difference <= 1e-12,
        "V-trace from the last step to the first gives the sums of its definition, to 1e-12",
        f"largest difference {difference:.0e}, of {cases} unrolls",
    )
