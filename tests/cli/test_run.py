"""`launchpad run`: a script as python runs it, or a program that a module defines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import scripts

COMMAND = str(Path(sys.executable).with_name("launchpad"))

SCRIPT = """
import os, sys
from absl import flags
import launchpad as lp
from launchpad.launch.backends.launcher_info import folder_of_script
import beside

FAILS = flags.DEFINE_bool("fails", False, "")

class Worker:
    def __init__(self, launcher):
        self.launcher = launcher
    def run(self):
        print("in a process of its own:", os.getpid() != self.launcher, beside.WORD)
        if FAILS.value:
            raise ValueError("it broke")

def show_folder():
    print("folder:", folder_of_script())

def make():
    program = lp.Program("defined_here")
    program.add_node(lp.PyClassNode(Worker, os.getpid()), label="worker")
    return program

folder = lp.Program("folder")
folder.add_node(lp.PyNode(show_folder), label="main")
"""
LAUNCHES = """
flags.FLAGS(sys.argv)
print(__name__, sys.argv, sys.warnoptions, flush=True)
lp.launch(make()).wait()
sys.exit(3)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a file with programs, a script that launches one, and what both import lie."""
    (tmp_path / "beside.py").write_text("WORD = 'beside'")
    (tmp_path / "programs.py").write_text(SCRIPT)
    (tmp_path / "the script.py").write_text(SCRIPT + LAUNCHES)
    (tmp_path / "module.py").write_text(SCRIPT + LAUNCHES)
    return tmp_path


def run(command: list[str], *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = scripts.run([*command, "run"], *arguments, cwd=cwd)
    assert "Traceback" not in done.stderr or "it broke" in done.stderr, done.stderr
    return done


def printed_by(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Its lines, without launchpad's own, as that a worker takes long to start."""
    return [line for line in done.stdout.splitlines() if not line.startswith("launchpad ")]


@pytest.mark.parametrize(
    ("where", "argv_0"), [("the script.py", "the script.py"), ("module", "{}/module.py")]
)
def test_a_script_or_a_module_runs_as_by_python(where: str, argv_0: str, folder: Path) -> None:
    command = [sys.executable, "-Wignore", COMMAND]

    done = run(command, where, "--launch_type=local_mp", "--", "--fails=false", "x", cwd=folder)

    argv = [argv_0.format(folder), "--fails=false", "x"]
    assert printed_by(done) == [
        f"__main__ {argv} ['ignore']",
        "worker-0  | in a process of its own: True beside",
    ]
    assert done.returncode == 3, done.stderr


def test_what_a_function_of_a_module_makes_is_launched_with_the_flags(folder: Path) -> None:
    done = run([COMMAND], "programs:make", "--launch_type=local_mp", "--", "--fails", cwd=folder)

    assert done.returncode == 1
    assert printed_by(done)[0] == "worker-0  | in a process of its own: True beside"
    assert "program 'defined_here' failed: worker-0 failed in run" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ("make --launch_type=local_mp", "worker-0  | in a process of its own: True beside"),
        ("folder", "main-0    | folder: {}"),
    ],
)
def test_what_lies_beside_a_file_is_code_of_its_program(
    folder: Path, arguments: str, printed: str
) -> None:
    command = [sys.executable, "-m", "launchpad"]

    done = run(command, *f"{folder}/programs.py:{arguments}".split(), cwd=Path("/"))

    assert (done.returncode, done.stderr) == (0, "")
    assert printed_by(done) == [printed.format(folder)]
