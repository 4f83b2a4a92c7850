"""A program whose workers fail at times drawn from a seed, run really and simulated, for comparison."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import launchpad as lp

RUN_S = 0.8
"""How long each worker runs if it doesn't fail."""

_START_S = 0.01
_BACKOFF_S = 0.06
_KINDS = ("succeeded", "failed", "stopped", "lost")

# Group → its size, its policy, and how likely each of its workers' first three attempts is to fail.
_GROUPS = {
    "single": (3, lp.RestartPolicy(max_restarts=2, backoff=_BACKOFF_S), (0.6, 0.5, 0.3)),
    "ranks": (
        3,
        lp.RestartPolicy(max_restarts=2, scope="group", backoff=_BACKOFF_S),
        (0.2, 0.2, 0.1),
    ),
    "root": (1, lp.RestartPolicy(max_restarts=1, scope="program", backoff=_BACKOFF_S), (0.2, 0.1)),
    "plain": (2, lp.RestartPolicy(mode="never"), (0.05,)),
}


class Ends(NamedTuple):
    """The ends of a run: how the program ended, and worker → how each of its attempts did."""

    program: str
    workers: dict[str, list[str]]


class Comparison(NamedTuple):
    """A program and its simulation.

    Attributes:
        margin_s: The shortest time between a failure of one worker and the end of another one, if nothing
            stopped that. If it is short, a real run may have these in the other order.
    """

    program: lp.Program
    simulated: Ends
    margin_s: float


def work(fails_after_s: Sequence[float]) -> None:
    """Run for a while, or fail as it is said of this attempt, or stop when asked."""
    attempt = lp.current().attempt
    is_stopped = lp.wait_for_stop(_run_time_s(fails_after_s, attempt))
    if not is_stopped and attempt <= len(fails_after_s):
        raise RuntimeError("as it was drawn")


def _run_time_s(fails_after_s: Sequence[float], attempt: int) -> float:
    return fails_after_s[attempt - 1] if attempt <= len(fails_after_s) else RUN_S


def draw(seed: int) -> Comparison:
    """Draw the failures of a seed, and simulate them."""
    random = Random(seed)
    failures: dict[str, list[float]] = {}
    program = lp.Program(f"drawn-{seed}")
    for label, (size, policy, chances) in _GROUPS.items():
        with program.group(label, restart=policy):
            for index in range(size):
                failing = itertools.takewhile(lambda chance: random.random() < chance, chances)
                times = [random.uniform(0.05, 0.75 * RUN_S) for _ in failing]
                failures[f"{label}-{index}"] = times
                program.add_node(lp.PyNode(work, times))
    simulation = lp.simulate(
        program, start_s=_START_S, run_s=dict.fromkeys(_GROUPS, RUN_S), failures=failures
    )
    ends = [event for event in simulation.history if event.what in _KINDS]
    # When each attempt ends if nothing stops it.
    due = [
        (event.subject, event.at_s + _run_time_s(failures[event.subject], event.attempt))
        for event in simulation.history
        if event.what == "ready"
    ]
    gaps = [
        abs(event.at_s - due_at)
        for event in ends
        for worker, due_at in due
        if event.what == "failed" and worker != event.subject
    ]
    workers: dict[str, list[str]] = {}
    for event in ends:
        workers.setdefault(event.subject, []).append(event.what)
    return Comparison(program, Ends(simulation.outcome, workers), min(gaps, default=RUN_S))


def run_really(comparisons: Sequence[Comparison], launch_type: str) -> list[Ends]:
    """Run the programs, all at the same time, and return how they ended."""
    launched = [lp.launch(comparison.program, launch_type) for comparison in comparisons]
    ends = []
    for running in launched:
        with contextlib.suppress(lp.ProgramFailed):
            running.wait(timeout_s=60)
        workers: dict[str, list[str]] = {}
        for attempt in running.history().attempts:
            assert attempt.outcome is not None
            workers.setdefault(attempt.worker, []).append(attempt.outcome.kind)
        ends.append(Ends("failed" if running.failure() else "succeeded", workers))
    return ends
