"""Run it: python -m examples.mapreduce --lp_launch_type=local_mp."""

import sysconfig
from pathlib import Path

from absl import app, flags

import launchpad as lp
from examples._shared import pictures
from examples._shared.checks import QUICK, done, phase
from examples.mapreduce.claims import check_counts
from examples.mapreduce.program import make_program
from examples.mapreduce.text import find_texts

INPUT = flags.DEFINE_string(
    "input", sysconfig.get_path("stdlib"), "Folder of text; by default Python's standard library."
)
PATTERN = flags.DEFINE_string("pattern", "*.py", "Which of its files to read.")
MAPPERS = flags.DEFINE_integer("mappers", 4, "How many mappers count words.", 1)
REDUCERS = flags.DEFINE_integer("reducers", 2, "How many reducers keep the counts.", 1)
CHAOS = flags.DEFINE_float(
    "chaos", 0.0, "How probably each mapper and reducer is killed in a tenth of a second.", 0, 1
)
CHAOS_KILLS = flags.DEFINE_integer(
    "chaos_kills",
    None,
    "How many it kills at most: on a cluster each takes seconds to come back.",
    1,
)
CHAOS_SEED = flags.DEFINE_integer("chaos_seed", 0, "Which workers it kills, and when.")
VICTIMS = ("mapper", "reducer")


def main(_: list[str]) -> None:
    """Find the texts, launch the program, and check the counts."""
    texts = find_texts(Path(INPUT.value), PATTERN.value)
    if QUICK.value:
        texts = texts[::10]
    chaos = f"; each may be killed, by chance {CHAOS.value}" if CHAOS.value else ""
    phase(f"{len(texts):,} files, {MAPPERS.value} mappers, {REDUCERS.value} reducers{chaos}")
    program = make_program(texts, MAPPERS.value, REDUCERS.value)
    running = survive(program) if CHAOS.value else lp.launch(program)
    (reducers,) = running.results("coordinator")
    running.wait()
    counts = check_counts(reducers, texts)
    most_frequent = counts.most_common(10)
    print("the most frequent words:")
    for word, count in most_frequent:
        print(f"{count:>12,}  {word}")
    pictures.bars("The most frequent words", "count", dict(most_frequent))
    done()


def survive(program: lp.Program) -> lp.Running:
    """Launch it, and kill its workers while it runs."""
    often = lp.RestartPolicy(max_restarts=1000, backoff=0)
    running = lp.launch(program, restart=dict.fromkeys(VICTIMS, often))
    chaos = lp.testing.KillWorkers(
        running,
        VICTIMS,
        seed=CHAOS_SEED.value,
        chance=CHAOS.value,
        every_s=0.1,
        at_most=CHAOS_KILLS.value,
    )
    with chaos:
        running.wait()
    print(chaos)
    return running


if __name__ == "__main__":
    app.run(main)
