"""Run it: python -m examples.ps --mode=sync --lp_launch_type=local_mp."""

from absl import app, flags

import launchpad as lp
from examples._shared import pictures
from examples._shared.checks import QUICK, done, phase
from examples._shared.problem import Problem
from examples.ps.claims import check_killed, check_learned
from examples.ps.program import SHARDS, make_program

MODE = flags.DEFINE_multi_enum(
    "mode", list(SHARDS), list(SHARDS), "Whether workers wait for each other; all modes by default."
)
WORKERS = flags.DEFINE_integer("workers", 4, "How many workers compute gradients.", 1)
SHARD_COUNT = flags.DEFINE_integer("shards", 2, "How many shards hold the parameters.", 1)
STEPS = flags.DEFINE_integer(
    "steps",
    None,
    "How many gradients each worker computes; by default 400, or 300 with --quick.",
    1,
)
KILL_SHARD_AT = flags.DEFINE_integer(
    "kill_shard_at", None, "At which step the first shard dies.", 0
)
RECORD = flags.DEFINE_string("record", "", "Folder for the order in which shards took gradients.")
REPLAY = flags.DEFINE_string("replay", "", "Folder of a recording whose order they keep to.")

LEAD = 20
"""By how many steps others may overtake a worker that straggles. If calls are ordered, none straggles."""


def main(_: list[str]) -> None:
    """Launch a program in each mode, and check what it has learned."""
    recorded = lp.edges.Record(RECORD.value) if RECORD.value else None
    order = lp.edges.Replay(REPLAY.value) if REPLAY.value else recorded
    lead = 0 if order else LEAD
    kill_at = KILL_SHARD_AT.value
    steps = STEPS.value or (300 if QUICK.value else 400)
    problem = Problem(workers=WORKERS.value, steps=steps)
    trained = {}
    for mode in MODE.value:
        killed = "" if kill_at is None else f"; shard 0 is killed at step {kill_at}"
        phase(f"{mode}: {problem.workers} workers, {SHARD_COUNT.value} shards{killed}")
        program = make_program(problem, mode, SHARD_COUNT.value, order, kill_at, lead)
        workers = lp.run(program)["worker"]
        check_learned(workers, problem, mode)
        if kill_at is not None:
            check_killed(workers[0])
        trained[mode] = workers[0]
    losses = {mode: own.losses for mode, own in trained.items()}
    pictures.curves("Loss of worker 0", "step", "loss", losses)
    staleness = {mode: own.staleness for mode, own in trained.items()}
    pictures.bars("Age of the oldest gradient", "updates of others, at most", staleness)
    done()


if __name__ == "__main__":
    app.run(main)
