"""`python -m launchpad plan`: the plan of a program that a script or a module makes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Command

HELLO = "examples.hello_world.program:make_program"
MODULES = ("script", "module", "beside")
LAUNCHES = """
import launchpad as lp
from beside import Worker
def make():
    program = lp.Program("by_file")
    program.add_node(lp.PyClassNode(Worker), label="worker")
    return program
program = make()
def main():
    lp.launch(program, "local_mt")
if {guard}:
    lp.launch(program, "local_mt")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, from which modules are imported that are forgotten afterwards."""
    (tmp_path / "beside.py").write_text("class Worker:\n    def run(self): print('it runs')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for module in MODULES:
        sys.modules.pop(module, None)


def test_a_plan_is_printed_for_kubernetes_as_manifests(output_of: Command) -> None:
    yaml = pytest.importorskip("yaml")

    plan = output_of("plan", HELLO, "--launch_type=local_mt")
    manifests = output_of("plan", HELLO, "--launch_type=kubernetes", "--image=example.org/me:3")

    assert "greeter-0" in plan
    assert "visitor-0" in plan
    kinds = [each["kind"] for each in yaml.safe_load_all(manifests)]
    assert kinds == ["ConfigMap", "Service", "Secret", "Job", "Job"]


@pytest.mark.parametrize(
    ("where", "name", "guard"),
    [
        ("{}/script.py", "make", "True"),
        ("script.py", "program", "lp.run(program)"),
        ("module", "make", "__name__ == '__main__'"),
        ("module", "program", "True"),
    ],
)
def test_sound_22_a_script_is_planned_by_its_file_and_launches_nothing(
    where: str, name: str, guard: str, folder: Path, output_of: Command
) -> None:
    for file in ("script.py", "module.py"):
        (folder / file).write_text(LAUNCHES.format(guard=guard))

    printed = output_of("plan", f"{where.format(folder)}:{name}", "--launch_type=local_mt")

    assert "program 'by_file' on local_mt: 1 workers" in printed
    assert "it runs" not in printed


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("plan :make", "there is no ':make' to import from here: Empty module name"),
        (f"plan {HELLO} -- three", "flags of the program: 'three' is not a flag"),
        ("plan nowhere:make", "there is no 'nowhere:make' to import from here: No module named"),
        ("plan nowhere.py:make", "no 'nowhere.py:make' to import from here: [Errno 2] No such"),
        ("plan json:loads_it", "module 'json' has no attribute 'loads_it'"),
        ("plan json:JSONDecoder", "json:JSONDecoder gives a JSONDecoder, and no lp.Program"),
        (f"plan {HELLO} --launch_type=kubernetes", "launch type 'kubernetes' needs an image"),
        (f"plan {HELLO} -- --no_such=1", "flags of the program: Unknown command line flag"),
        ("plan script.py:main", "script.py:main launches a program, where it should return one"),
        ("run nowhere.py", "there is no file 'nowhere.py'"),
        (f"graph {HELLO} -o /nowhere/hello.svg", "the picture cannot be written: "),
        (
            "run module:make",
            "module launches a program when it is imported: run it without `:make`",
        ),
    ],
)
def test_sound_22_what_cannot_be_planned_drawn_or_run_is_said_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error_of: Command, command: str, complaint: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["launchpad"])  # `run` changes it
    (folder / "script.py").write_text(LAUNCHES.format(guard="False"))
    (folder / "module.py").write_text(LAUNCHES.format(guard="True"))

    message = error_of(*command.split())

    assert message.startswith("launchpad: ")
    assert complaint in message
    assert message.count("\n") == 1
