"""Run it: python -m examples.mapreduce --lp_launch_type=local_mp."""

import sysconfig
from pathlib import Path

from absl import app, flags

import launchpad as lp
from examples.mapreduce.program import make_program
from examples.mapreduce.text import find_texts

INPUT = flags.DEFINE_string(
    "input", sysconfig.get_path("stdlib"), "Folder of text; by default Python's standard library."
)
PATTERN = flags.DEFINE_string("pattern", "*.py", "Which of its files to read.")
MAPPERS = flags.DEFINE_integer("mappers", 4, "How many mappers count words.", 1)
REDUCERS = flags.DEFINE_integer("reducers", 2, "How many reducers add the counts up.", 1)


def main(_: list[str]) -> None:
    """Find the texts, build the program and launch it."""
    texts = find_texts(Path(INPUT.value), PATTERN.value)
    lp.launch(make_program(texts, MAPPERS.value, REDUCERS.value))


if __name__ == "__main__":
    app.run(main)
