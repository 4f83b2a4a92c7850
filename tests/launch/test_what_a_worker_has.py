"""Threads and processes have the same of their script, or docs/what_a_worker_has.md says it."""

from __future__ import annotations

import json
import pickle
import re
import sys
from pathlib import Path

import pytest

from launchpad.launch.planning import module_settings
from tests.helpers import scripts

PAGE = scripts.ROOT / "docs" / "what_a_worker_has.md"
SCRIPT = scripts.ROOT / "tests" / "helpers" / "set_by_a_script.py"
TAKEN_OVER, OF_A_THREAD, LEFT = "Taken over", "Of one thread only", "Not taken over"
OPTIONAL = ("`numpy.", "`gymnasium.", "`torch.")

REGISTRY = """
MODELS = {}

def make(name):
    return MODELS[name]()
"""

NOT_SET_UP = """
import sys
import launchpad as lp
import models

class Corridor: ...

models.MODELS["corridor"] = Corridor

def make_it(): models.make("corridor")
def look_up(): {}["left"]

if __name__ == "__main__":
    for function in (make_it, look_up):
        program = lp.Program("registry")
        program.add_node(lp.PyNode(function), label="worker")
        try:
            lp.run(program, sys.argv[1])
        except lp.ProgramFailed as failed:
            print(function.__name__, "hint" if "lp.Program(…, setup=f)" in str(failed) else "no hint")
"""


def rows(title: str) -> dict[str, list[str]]:
    """Thing → the other cells of its row, of the table under this title."""
    (section,) = re.findall(rf"^## {title}\n(.*?)(?=^## )", PAGE.read_text(), re.M | re.S)
    lines = re.findall(r"^\| (.*) \|$", section, re.M)[1:]
    cells = [line.split(" | ") for line in lines]
    return {thing: others for names, *others in cells for thing in names.split(", ")}


def test_threads_and_processes_agree_on_what_a_script_sets_or_the_page_says_not() -> None:
    command = [sys.executable, str(SCRIPT)]

    done = scripts.run(command, env={"PYTHONDONTWRITEBYTECODE": ""})

    assert done.returncode == 0, done.stdout + done.stderr
    seen: dict[str, list[str]] = json.loads(done.stdout.partition("seen ")[2])
    tables = {title: rows(title) for title in (TAKEN_OVER, OF_A_THREAD, LEFT)}
    title_of = {thing: title for title, table in tables.items() for thing in table}
    wrong = []
    for thing, (before, script, thread, process) in seen.items():
        print(f"{thing:45} {before:.30} → {script:.30}; thread {thread:.30}, process {process:.30}")
        if script == thread == process:
            title = TAKEN_OVER
        elif script == thread:
            title = LEFT
        else:
            title = OF_A_THREAD if thread == process else "no table"
        if before == script or title_of.get(thing) != title:
            wrong.append(thing)
    assert not wrong
    assert len(seen) >= 40
    assert {thing for thing in set(title_of) - set(seen) if not thing.startswith(OPTIONAL)} == set()
    assert sum(map(len, tables.values())) == len(title_of)
    (noticed,) = re.findall(
        "set up by the script only: (.*) Workers that are", done.stdout + done.stderr
    )
    for thing, cells in tables[LEFT].items():
        if thing in seen:
            name = thing.strip("`").replace("handlers of signals", "the handler of SIGALRM")
            assert (name in noticed) == (cells[-1] == "yes"), thing


def test_a_program_with_a_setup_is_not_told_what_its_script_keeps(tmp_path: Path) -> None:
    text = """
import signal, sys
import launchpad as lp

def handle(*args): ...
def set_up(): ...

signal.signal(signal.SIGALRM, handle)

if __name__ == "__main__":
    for setup in (None, set_up):
        program = lp.Program("alarms", setup=setup)
        program.add_node(lp.PyNode(print, "works"), label="worker")
        lp.run(program, sys.argv[1])
"""

    processes = scripts.run(scripts.write(tmp_path, text), "local_mp")
    threads = scripts.run(scripts.write(tmp_path, text), "local_mt")

    assert processes.stdout.count("the handler of SIGALRM") == 1, processes.stderr
    assert threads.returncode == 0, threads.stderr
    assert "SIGALRM" not in threads.stdout


def test_an_entry_that_a_registry_lacks_is_explained(tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text(REGISTRY)

    done = scripts.run(scripts.write(tmp_path, NOT_SET_UP), "local_mp", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "make_it hint" in done.stdout
    assert "look_up no hint" in done.stdout


def test_a_setting_that_cannot_be_made_here_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    module_settings.apply((("locale.setlocale", pickle.dumps({"LC_TIME": "xx_XX"})),))

    assert (
        "locale.setlocale is not here what it is in the script: Error:" in capsys.readouterr().err
    )
