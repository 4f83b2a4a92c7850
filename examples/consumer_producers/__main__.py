"""Run it: python -m examples.consumer_producers --lp_launch_type=local_mp."""

from absl import app, flags

import launchpad as lp
from examples.consumer_producers.program import check, make_program

PRODUCERS = flags.DEFINE_integer("producers", 4, "How many producers share the work.", 1)
LIMIT = flags.DEFINE_integer("limit", 200_000, "Count the primes below this number.", 1)


def main(_: list[str]) -> None:
    """Run the program that the flags describe, and check what its consumer returns."""
    (counts,) = lp.run(make_program(PRODUCERS.value, LIMIT.value))["consumer"]
    check(counts, LIMIT.value)


if __name__ == "__main__":
    app.run(main)
