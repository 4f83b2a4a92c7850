"""What is claimed of an agent, checked on what the workers of a run have returned."""

from collections.abc import Sequence
from itertools import pairwise

import launchpad as lp
from examples._shared.checks import check
from examples.acme.algorithm import EnvironmentLoop, mean_return
from examples.acme.dqn import GreedyActor
from examples.acme.evaluator import Evaluated
from examples.acme.learner import SAVE_EVERY, Begun
from examples.acme.variable_client import STALE_S, Age

FRESH_EPISODES, FRESH_SEED, SOLVED = 100, 2_000_000, 475.0  # gymnasium calls it solved from there


def check_solved(how: str, runs: Sequence[Evaluated]) -> None:
    """The policy balances the pole in episodes that neither training nor the evaluator has seen."""
    loops = [EnvironmentLoop(GreedyActor(run.variables), FRESH_SEED) for run in runs]
    returns = [mean_return(loop, FRESH_EPISODES) for loop in loops]
    steps = " ".join(f"{run.curve[-1].counts['actor_steps']:.0f}" for run in runs)
    check(
        min(returns) >= SOLVED,
        f"{how}: the mean return of {FRESH_EPISODES} fresh episodes is {SOLVED:g} at least, for each seed",
        f"{' '.join(f'{each:.1f}' for each in returns)}, after {steps} steps",
    )


def check_ratio(table: lp.replay.TableInfo, samples_per_insert: float) -> None:
    """What the table itself has noted after each insert and each sample."""
    middle = (table.min_diff + table.max_diff) / 2
    check(
        table.min_diff <= table.lowest_diff and table.highest_diff <= table.max_diff,
        f"each transition is sampled {samples_per_insert:g} times on average, to"
        f" ±{table.max_diff - middle:g} samples at every moment",
        f"{table.lowest_diff - middle:+g} to {table.highest_diff - middle:+g},"
        f" in {table.inserts} inserts and {table.samples} samples",
    )


def check_age(ages: Sequence[Age]) -> None:
    """By one clock: the workers are on one host."""
    oldest, times = max(age.seconds for age in ages), sum(age.times for age in ages)
    check(
        oldest <= STALE_S and all(age.is_monotone for age in ages),
        f"variables are {STALE_S:g} s old at most when an actor asks, and never older than those before",
        f"{oldest:.2f} s in {times} times; {max(age.steps for age in ages)} steps behind at most",
    )


def check_killed(begun: Sequence[Begun], crashes: Sequence[int], run: Evaluated) -> None:
    """Each attempt goes on from what the one before has saved, and so do the counts."""
    saved = [(crash - 1) // SAVE_EVERY * SAVE_EVERY for crash in crashes]
    is_monotone = all(
        one.step <= other.step and all(other.counts[name] >= n for name, n in one.counts.items())
        for one, other in pairwise(run.curve)
    )
    check(
        [each.step for each in begun] == [0, *saved] and is_monotone,
        f"a learner that is killed {len(crashes)} times goes on from what it has saved, and no count decreases",
        f"killed after steps {list(crashes)}, went on from {[each.step for each in begun[1:]]}, ended with"
        f" {run.curve[-1].counts['learner_steps']:.0f} counted",
    )
