"""`launchpad run`: a script as python runs it, or a program that a module defines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import scripts

COMMAND = str(Path(sys.executable).with_name("launchpad"))
BY_MODULE = [sys.executable, "-m", "launchpad"]

SCRIPT = """
import os, sys
from absl import flags
import launchpad as lp
from launchpad.launch.backends.launch_origin import folder_of_script
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


@pytest.mark.parametrize(
    ("where", "argv_0"), [("the script.py", "the script.py"), ("module", "{}/module.py")]
)
def test_a_script_or_a_module_runs_as_by_python(where: str, argv_0: str, folder: Path) -> None:
    command = [sys.executable, "-Wignore", COMMAND]

    done = run(command, where, "--launch_type=local_mp", "--", "--fails=false", "x", cwd=folder)

    argv = [argv_0.format(folder), "--fails=false", "x"]
    assert done.stdout.splitlines() == [
        f"__main__ {argv} ['ignore']",
        "worker-0  | in a process of its own: True beside",
    ]
    assert done.returncode == 3, done.stderr


@pytest.mark.parametrize("command", [[COMMAND], BY_MODULE], ids=["command", "module"])
def test_what_a_function_of_a_module_makes_is_launched_with_the_flags(
    command: list[str], folder: Path
) -> None:
    done = run(command, "programs:make", "--launch_type=local_mp", "--", "--fails", cwd=folder)

    assert done.returncode == 1
    assert done.stdout.startswith("worker-0  | in a process of its own: True beside\n")
    assert "program 'defined_here' failed: worker-0 failed in run" in done.stderr


def test_of_a_file_by_its_path_what_lies_beside_it_is_the_code_of_the_program(
    folder: Path,
) -> None:
    processes = run(
        [COMMAND], f"{folder}/programs.py:make", "--launch_type=local_mp", cwd=Path("/")
    )
    threads = run([COMMAND], f"{folder}/programs.py:folder", cwd=Path("/"))

    assert (processes.returncode, processes.stderr) == (0, "")
    assert processes.stdout == "worker-0  | in a process of its own: True beside\n"
    assert threads.stdout == f"main-0    | folder: {folder}\n"


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        ("nowhere.py", "there is no file 'nowhere.py'"),
        ("nowhere.py:make", "there is no 'nowhere.py:make' to import from here: [Errno 2]"),
        ("programs.py:train", "module 'programs' has no attribute 'train'"),
        ("programs.py:FAILS", "programs.py:FAILS gives a FlagHolder, and no lp.Program"),
        ("module:make", "module launches a program when it is imported: run it without `:make`"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line(what: str, complaint: str, folder: Path) -> None:
    done = run([COMMAND], what, cwd=folder)

    assert done.returncode == 1
    assert done.stderr.startswith("launchpad: ")
    assert complaint in done.stderr
    assert done.stderr.count("\n") == 1
