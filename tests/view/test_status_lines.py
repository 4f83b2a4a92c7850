"""`launch(view="terminal")`: lines at the bottom of the script's terminal."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.helpers import screens, scripts

SCRIPT = """
import os, subprocess, sys
import launchpad as lp

class Table:
    def write(self, number):
        if os.path.exists(sys.argv[1]):
            raise ValueError("boom")

def play(table):
    number = 0
    while not lp.wait_for_stop(0.01):
        table.write(number)
        number += 1

program = lp.Program("demo")
table = program.add_node(lp.CourierNode(Table), label="table")
program.add_node(lp.PyNode(play, table), label="player")
if __name__ == "__main__":
    running = lp.launch(program, "local_mp", view="terminal")
    for number in range(100):
        subprocess.run(["echo", f"from a child {number}"])
"""


@pytest.mark.slow
def test_they_stay_below_and_leave_a_whole_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    command = shlex.join([*scripts.write(tmp_path, SCRIPT), str(tmp_path / "broken")])
    with screens.opened() as start:
        screen = start(["bash", "-c", f"{command}; echo ended with $?; read"], 80, 24)

        screen.waits_for(r"^player → table  write  [1-9]\d* calls/s  p50")
        assert re.search(r"^demo · local_mp · up .* · 2 running · \d+ calls/s$", screen.text, re.M)
        shown = screen.waits_for(r"^from a child 99\n(launchpad.*\n)*\n*─{80}\ndemo")
        assert "from a child 98\nfrom a child 99" in shown

        screen.resize(60, 20)
        shown = screen.waits_for(r"^─{60}\ndemo.*\nplayer")
        assert shown.count("demo") == 1
        (tmp_path / "broken").touch()
        shown = screen.waits_for(r"^ended with 1$")
        assert "ValueError: boom" in shown
        assert "─" not in shown


def test_without_a_terminal_there_are_none(tmp_path: Path) -> None:
    (tmp_path / "broken").touch()

    done = scripts.run(scripts.write(tmp_path, SCRIPT), str(tmp_path / "broken"))

    assert "boom" in done.stderr
    assert "\x1b" not in done.stdout
    assert "calls/s" not in done.stdout
