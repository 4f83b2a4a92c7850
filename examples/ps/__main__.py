"""Run it: python -m examples.ps --mode=sync --lp_launch_type=local_mp."""

from absl import app, flags

import launchpad as lp
from examples.ps.program import SHARDS, make_program

MODE = flags.DEFINE_enum("mode", "sync", list(SHARDS), "Whether workers wait for each other.")
WORKERS = flags.DEFINE_integer("workers", 4, "How many workers compute gradients.", 1)
SHARD_COUNT = flags.DEFINE_integer("shards", 2, "How many shards hold the parameters.", 1)


def main(_: list[str]) -> None:
    """Build the program that the flags describe and launch it."""
    lp.launch(make_program(MODE.value, WORKERS.value, SHARD_COUNT.value))


if __name__ == "__main__":
    app.run(main)
