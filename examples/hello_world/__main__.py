"""Run it: python -m examples.hello_world --lp_launch_type=local_mp."""

from absl import app

import launchpad as lp
from examples.hello_world.program import make_program


def main(_: list[str]) -> None:
    """Build the program and launch it."""
    lp.launch(make_program())


if __name__ == "__main__":
    app.run(main)
