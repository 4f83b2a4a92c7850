"""Tools that look into a running Python work in thread mode, also inside of served methods."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import scripts

NUM_CALLS = 20


def run(directory: Path, script: str, *command: str, stdin: str = "") -> str:
    """What a script prints that is run as a user does, `python COMMAND… script.py`."""
    path = directory / "script.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, *command, str(path)],
        cwd=directory,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        env=scripts.environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_breakpoint_in_a_served_method_stops_there_and_shows_the_server_alone(
    tmp_path: Path,
) -> None:
    script = f"""
import launchpad as lp

class Learner:
    def step(self, batch):
        if batch == {NUM_CALLS - 1}:
            breakpoint()
        return 2 * batch

def ask(learner):
    answers = [learner.step(i) for i in range({NUM_CALLS})]
    print("the last answer is", answers[-1])

program = lp.Program("debugged")
learner = program.add_node(lp.CourierNode(Learner), label="learner")
program.add_node(lp.PyNode(ask, learner), label="asker")
lp.launch(program, "local_mt").wait()
"""

    output = run(tmp_path, script, stdin="where\np batch + 1000\nbatch = 50\ncontinue\n")

    stack = output[: output.index(str(1000 + NUM_CALLS - 1))]
    assert "step()" in stack
    assert "ask()" not in stack
    assert "the last answer is 100" in output


def test_coverage_sees_the_lines_of_a_served_method(tmp_path: Path) -> None:
    script = f"""import launchpad as lp

class Learner:
    def step(self, batch):
        if batch < 0:
            return "never"
        return 2 * batch

program = lp.Program("covered")
program.add_node(lp.CourierNode(Learner), label="learner")
running = lp.launch(program, "local_mt")
client = running.client("learner")
for i in range({NUM_CALLS}):
    client.step(i)
running.stop()
"""

    run(tmp_path, script, "-m", "coverage", "run", "--include=script.py")
    subprocess.run(
        [sys.executable, "-m", "coverage", "json", "-q"], cwd=tmp_path, check=True, timeout=60
    )
    report = json.loads((tmp_path / "coverage.json").read_text())["files"]["script.py"]

    assert report["missing_lines"] == [6]


COVERED = """import launchpad as lp

def used(number):
    if number < 0:
        return "never"
    return number + 1

class Learner:
    def step(self, batch):
        return used(batch)

def ask(learner):
    if learner.step(1) == 2:
        raise ValueError("on purpose")

if __name__ == "__main__":
    program = lp.Program("covered")
    learner = program.add_node(lp.CourierNode(Learner), label="learner")
    program.add_node(lp.PyNode(ask, learner), label="asker")
    try:
        lp.run(program, "local_mp")
    except lp.ProgramFailed:
        pass
"""


@pytest.mark.parametrize("settings", ["", "[run]\npatch = subprocess, _exit\n"])
def test_coverage_run_measures_workers_that_are_processes_too(
    tmp_path: Path, settings: str
) -> None:
    (tmp_path / ".coveragerc").write_text(settings)

    run(tmp_path, COVERED, "-m", "coverage", "run", "--parallel-mode", "--include=script.py")
    for command in ("combine -q", "json -q"):
        subprocess.run(
            [sys.executable, "-m", "coverage", *command.split()],
            cwd=tmp_path,
            check=True,
            timeout=60,
        )
    report = json.loads((tmp_path / "coverage.json").read_text())["files"]["script.py"]

    assert report["missing_lines"] == [5]


@pytest.mark.parametrize(
    ("launch_type", "call", "text"),
    [
        ("test_mp", "breakpoint()", "RuntimeError: breakpoint() needs a terminal"),
        ("local_mp", "pdb.set_trace()", "a debugger had no terminal to read from"),
    ],
)
def test_sound_32_a_debugger_in_a_process_names_the_launch_type_in_which_it_works(
    tmp_path: Path, launch_type: str, call: str, text: str
) -> None:
    script = f"""
import pdb
import launchpad as lp

def work():
    {call}
    print("goes on")

program = lp.Program("debugged")
program.add_node(lp.PyNode(work), label="worker")
try:
    lp.launch(program, "{launch_type}").wait()
except lp.ProgramFailed as failed:
    print(failed)
"""

    output = run(tmp_path, script)

    assert text in output
    assert "--lp_launch_type=local_mt" in output
