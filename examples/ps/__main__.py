"""Run it: python -m examples.ps --mode=sync --lp_launch_type=local_mp."""

from absl import app, flags

import launchpad as lp
from examples._shared.checks import done
from examples._shared.problem import Problem
from examples.ps.claims import check_killed, check_learned
from examples.ps.program import SHARDS, make_program

MODE = flags.DEFINE_enum("mode", "sync", list(SHARDS), "Whether workers wait for each other.")
WORKERS = flags.DEFINE_integer("workers", 4, "How many workers compute gradients.", 1)
SHARD_COUNT = flags.DEFINE_integer("shards", 2, "How many shards hold the parameters.", 1)
KILL_SHARD_AT = flags.DEFINE_integer(
    "kill_shard_at", None, "At which step the first shard dies.", 0
)
RECORD = flags.DEFINE_string("record", "", "Folder for the order in which shards took gradients.")
REPLAY = flags.DEFINE_string("replay", "", "Folder of a recording whose order they keep to.")


def main(_: list[str]) -> None:
    """Build the program that the flags describe and launch it."""
    recorded = lp.edges.Record(RECORD.value) if RECORD.value else None
    order = lp.edges.Replay(REPLAY.value) if REPLAY.value else recorded
    problem = Problem(workers=WORKERS.value)
    kill_at = KILL_SHARD_AT.value
    trained = lp.run(make_program(problem, MODE.value, SHARD_COUNT.value, order, kill_at))["worker"]
    check_learned(trained, problem, MODE.value)
    if kill_at is not None:
        check_killed(trained[0])
    done()


if __name__ == "__main__":
    app.run(main)
