"""A comparison of `launchpad run --ranks` with torchrun, on one script: `python benchmarks/ranks.py`.

    launchpad           launchpad run --ranks 4 train_ddp.py
    launchpad, preload  launchpad run --ranks 4 --preload torch,torch._dynamo train_ddp.py
    torchrun            torchrun --nproc-per-node 4 --max-restarts 3 train_ddp.py, with the variable
                        TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1. Without it, torch 2.13 on gloo does not
                        restart: gloo's connections are refused in the new ranks

first step     from the start of the command until all ranks have done a step
CPU            the CPU time of a rank until then, mean of all
next step      from `kill -9` of a rank until all ranks have done a step again
Ctrl-C         from the key until all processes have ended

Measure on an idle machine. On a busy one, ranks without preloading begin later here than under torchrun.

Contenders take turns. The script exits with 1 if the weights at the end are not those of a run without a
kill, bit for bit, or if a process is left. It needs torch.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.figures import Table, in_turns, spread
from benchmarks.harness.holdings import MarkedScript
from benchmarks.harness.processes import ROOT, wait_until

TRAIN = str(ROOT / "benchmarks" / "peers" / "train_ddp.py")
COMMANDS = {
    "launchpad": "launchpad run --ranks={}",
    "launchpad, preload": "launchpad run --ranks={} --preload=torch,torch._dynamo",
    "torchrun": "torch.distributed.run --nproc-per-node={} --max-restarts=3",
}
BECOME = (
    "import os, sys; os.chdir(os.environ['TMPDIR']);"
    " os.execv(sys.executable, [sys.executable, '-m', *sys.argv[1:]])"
)
DEADLINE_S = 120.0
STEPS = 40
ENDLESS = 10**6
KILLED_RANK = 1
KILLED_AFTER = 12
"""The step at which the rank is killed."""


class Note(NamedTuple):
    """A step that a rank has done."""

    generation: int
    rank: int
    step: int
    pid: int
    at: float
    cpu_s: float


class Trial(NamedTuple):
    """The figures of one contender in one round."""

    first_step_s: float
    cpu_s: float
    next_step_s: float
    ctrl_c_s: float
    weights: bytes
    left: list[str]


class Training(MarkedScript):
    """The training under one of the commands, in a session of its own, as in a terminal of its own."""

    def __init__(self, command: str, ranks: int, steps: int) -> None:
        self.began = time.monotonic()
        self._ranks = ranks
        words = [*COMMANDS[command].format(ranks).split(), TRAIN, f"--steps={steps}"]
        super().__init__(
            BECOME,
            *words,
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def notes(self) -> list[Note]:
        """Return the steps that the ranks have done so far."""
        path = Path(self.directory, "notes")
        lines = path.read_text().splitlines() if path.exists() else []
        return [Note(*map(int, line.split()[:4]), *map(float, line.split()[4:])) for line in lines]

    def first_steps(self, generation: int) -> list[Note]:
        """Wait until all ranks have done a step in this generation. Return the first one of each."""
        notes: dict[int, Note] = {}

        def are_all_there() -> bool:
            for note in reversed(self.notes()):
                if note.generation == generation:
                    notes[note.rank] = note
            return len(notes) == self._ranks

        wait_until(lambda: are_all_there() or self.process.poll() is not None, DEADLINE_S)
        if not are_all_there():
            sys.exit(f"FAILED: generation {generation} of {self.process.args!r} does not begin")
        return list(notes.values())

    def wait(self) -> None:
        self.process.wait(DEADLINE_S)


def seconds_until_all_step(training: Training, generation: int, since: float) -> float:
    return max(note.at for note in training.first_steps(generation)) - since


def weights_of(training: Training) -> bytes:
    """Return the weights at the end of a training, as bytes."""
    import torch

    _, weights, _ = torch.load(Path(training.directory, "checkpoint.pt"))
    return b"".join(value.numpy().tobytes() for value in weights.values())


def trial(command: str, ranks: int) -> Trial:
    """Train to the end with a rank killed on the way; then once more, until Ctrl-C."""
    with Training(command, ranks, STEPS) as training:
        first_step_s = seconds_until_all_step(training, 0, training.began)
        cpu_s = statistics.fmean(note.cpu_s for note in training.first_steps(0))
        wait_until(lambda: training.notes()[-1].step >= KILLED_AFTER, DEADLINE_S)
        victim = next(note for note in training.notes() if note.rank == KILLED_RANK)
        os.kill(victim.pid, signal.SIGKILL)
        killed_at = time.monotonic()
        next_step_s = seconds_until_all_step(training, 1, killed_at)
        training.wait()
        weights = weights_of(training)
        left = training.left_over()
    with Training(command, ranks, ENDLESS) as training:
        training.first_steps(0)
        # The terminal sends the signal to all processes in the foreground.
        os.killpg(training.process.pid, signal.SIGINT)
        pressed_at = time.monotonic()
        training.wait()
        wait_until(lambda: not training.processes(), 1.0)
        ctrl_c_s = time.monotonic() - pressed_at
        left += training.left_over()
    return Trial(first_step_s, cpu_s, next_step_s, ctrl_c_s, weights, left)


def undisturbed(command: str, ranks: int) -> bytes:
    """Return the weights of a training without a kill."""
    with Training(command, ranks, STEPS) as training:
        training.wait()
        return weights_of(training)


def main() -> None:
    options = Parser(__doc__, {"rounds": 1}, ranks=4, rounds=3).parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    weights = undisturbed("torchrun", options.ranks)
    contenders = {name: partial(trial, name, options.ranks) for name in COMMANDS}
    trials = in_turns(contenders, options.rounds)
    columns = ("first step", "CPU", "next step", "Ctrl-C")
    table = Table("seconds", {f"{column} (range)": ".2f" for column in columns})
    results = {}
    faults = []
    for name, rounds in trials.items():
        spreads = [spread(figures) for figures in list(zip(*rounds, strict=True))[: len(columns)]]
        table.row(name, *spreads)
        results[name] = dict(zip(columns, spreads, strict=True))
        faults += [f"{name}: {left}" for each in rounds for left in each.left]
        faults += [f"{name}: other weights" for each in rounds if each.weights != weights]
    if not faults:
        print("the same weights in all trials, and no process left")
    finish(options, {"ranks": results}, faults)


if __name__ == "__main__":
    main()
