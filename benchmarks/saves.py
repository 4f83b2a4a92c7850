"""A check that saved states survive kills: of a worker while it saves, and of a whole program.

    python benchmarks/saves.py --kills 500 --resumes 20

killed     A worker saves one state after the other, of 0 to 1 MB, and notes each when `save` has returned. It
           is killed (SIGKILL) at a random moment, and started again. It must then load the last state that it
           noted, or the one that it was saving. Anything else ends the program.
resumed    Three workers of a program with `state=` each compute a sum, step by step. The launcher or one of
           the workers is killed at a random moment, and the program is launched again until it is done. At
           the end the sums must be those of a program without kills.

The script exits with 1 if a state was torn, lost or old.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import launchpad as lp
from benchmarks.harness.command_line import Parser, finish
from benchmarks.harness.processes import environment
from benchmarks.harness.programs import FOREVER, launch, replicas

DEADLINE_S = 60.0


class Saver:
    """A worker that checks the state that it loads, then saves new ones until it is killed."""

    def __init__(self, notes: str) -> None:
        self._notes = notes

    def run(self) -> None:
        me = lp.current()
        step, numbers = me.load(default=(0, np.zeros(0)))
        noted = len(Path(self._notes).read_bytes()) if me.attempt > 1 else 0
        if step not in (noted, noted + 1) or not (numbers == step).all():
            raise lp.DoNotRestart(f"state {step} was loaded, {noted} was saved: {numbers[:3]}…")
        notes = os.open(self._notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(notes, b"x" * (step - noted))  # the state that was saved just before the kill
        chance = random.Random(step)
        while True:
            step += 1
            me.save((step, np.full(chance.randrange(125_000), step, np.float64)))
            os.write(notes, b"x")


def kill_while_it_saves(kills: int, seed: int) -> tuple[int, float]:
    """Kill a worker that saves; return the number of states it saved, and the seconds."""
    chance = random.Random(seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        notes = Path(folder) / "notes"
        program = replicas("saver", 1, lambda: lp.PyClassNode(Saver, str(notes)), FOREVER)
        state = Path(folder) / "state"
        with launch(program, state=state) as running:
            for number in range(kills):
                pid = running_pid(running, number + 1)
                time.sleep(chance.uniform(0, 0.05))
                os.kill(pid, signal.SIGKILL)
            running_pid(running, kills + 1)
            size = notes.stat().st_size
            # The last attempt must find a good state, too: then it notes one more.
            while notes.stat().st_size == size:
                running_pid(running, kills + 1)
                time.sleep(0.001)
        return notes.stat().st_size, time.monotonic() - began


def running_pid(running: lp.Running, attempt: int) -> int:
    """Wait until the worker runs in this attempt, and return its pid. Exit if it found a wrong state."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        (status,) = running.status()
        if status.attempt == attempt and status.state == "running" and status.pid:
            return status.pid
        if status.state in ("failed", "stopped", "succeeded"):
            sys.exit(f"FAILED: {status}")
        time.sleep(0.0005)
    sys.exit(f"FAILED: attempt {attempt} does not run")


SCRIPT = """
import os, random, signal, sys, threading, time
import launchpad as lp

STEPS, dies = 60, sys.argv[3] == "worker"

def work():
    me = lp.current()
    state = me.load(default={"step": 0, "sum": 0.0})
    while state["step"] < STEPS:
        step = state["step"] + 1
        state = {"step": step, "sum": state["sum"] * 0.5 + random.Random(f"{me.name} {step}").random()}
        me.save(state)
        time.sleep(0.005)
        if dies and me.replica_index == step % 3 and random.random() < 0.2:
            os.kill(os.getpid(), signal.SIGKILL)
    return state["sum"]

program = lp.Program("resumed")
with program.group("work", restart=lp.RestartPolicy(max_restarts=10**6, backoff=0)):
    for _ in range(3):
        program.add_node(lp.PyNode(work))
if __name__ == "__main__":
    after_s = float(sys.argv[2])
    if after_s:
        threading.Timer(after_s, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    print(lp.run(program, "local_mp", state=sys.argv[1], terminal="output_to_files")["work"], flush=True)
    os._exit(0)
"""


def resume(resumes: int, seed: int) -> tuple[str, str, int]:
    """Return the sums of a run without kills, those of a run with kills, and its number of launches."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "resumed.py"
        script.write_text(SCRIPT)
        began = time.monotonic()
        undisturbed = run(script, f"{folder}/calm", 0, "nobody")
        calm_s = time.monotonic() - began
        sums = ""
        launches = 0
        state = f"{folder}/state"
        while not sums or launches <= resumes:
            if sums:  # the program was done before enough kills: start it from the beginning
                state = f"{folder}/state-{launches}"
                sums = ""
            victim = chance.choice(("worker", "nobody"))
            sums = run(script, state, chance.uniform(0.3, 0.9) * calm_s, victim)
            launches += 1
        last_sums = run(script, state, 0, "nobody")
        while not last_sums:
            launches += 1
            last_sums = run(script, state, 0, "nobody")
        return undisturbed, last_sums, launches


def run(script: Path, state: str, killed_after_s: float, victim: str) -> str:
    """Launch the script once; return its output, which is empty if it was killed before its end."""
    command = [sys.executable, str(script), state, str(killed_after_s), victim]
    deadline = time.monotonic() + DEADLINE_S
    while True:
        process = subprocess.run(
            command, capture_output=True, text=True, env=environment(), check=False
        )
        # Workers of a launcher that was just killed may still hold the state for a moment.
        if "is in use by" not in process.stderr or time.monotonic() > deadline:
            break
    if process.returncode not in (0, -signal.SIGKILL):
        sys.exit(f"FAILED: exit {process.returncode}\n{process.stdout}{process.stderr}")
    return process.stdout.strip()


def main() -> None:
    """Print the figures; exit with 1 if a state was torn, lost or old."""
    options = Parser(__doc__, kills=500, resumes=20, seed=0).parse_args()
    saved, seconds = kill_while_it_saves(options.kills, options.seed)
    print(
        f"killed    {options.kills} times in {seconds:.0f} s, {saved:,} states saved meanwhile: each time the"
        " last one was found, or the one that was being saved"
    )
    undisturbed, last, launches = resume(options.resumes, options.seed)
    print(f"resumed   {launches} launches, most of them killed")
    faults = [] if undisturbed == last else [f"sums {last}, undisturbed {undisturbed}"]
    finish(options, {"saves": {"saved": saved, "launches": launches}}, faults)


if __name__ == "__main__":
    main()
