"""How a worker on another host finds the user's code: the project goes with the program."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.helpers import scripts
from tests.spark import sessions

DEADLINE_S = 240.0

SCRIPT = """
import launchpad as lp
from launchpad.launch.backends.spark import code, session
import os
import of_mine

session.is_here = lambda host: False    # as if all executors were on other hosts, without the project
send = code.send_to_other_hosts

def send_and_hide(context):
    send(context)
    os.rename(os.path.dirname(__file__), "hidden")

code.send_to_other_hosts = send_and_hide

program = lp.Program("far")
program.add_node(lp.PyNode(of_mine.look), label="far")
lp.launch(program, "spark")
"""

MODULE = """
import launchpad
from pathlib import Path

def look():
    print("data:", Path(__file__).with_name("data.txt").read_text())
    print("mine:", __file__)
    print("launchpad:", launchpad.__file__)
"""


@pytest.mark.slow
def test_a_host_that_has_neither_our_code_nor_launchpad_gets_both(tmp_path: Path) -> None:
    sessions.skip_without_spark()
    project = tmp_path / "project"
    project.mkdir()
    (project / "script.py").write_text(SCRIPT)
    (project / "of_mine.py").write_text(MODULE)
    (project / "data.txt").write_text("42")

    done = scripts.run([sys.executable, "project/script.py"], cwd=tmp_path, timeout_s=DEADLINE_S)

    assert done.returncode == 0, done.stderr
    assert "data: 42" in done.stdout
    for what in ("mine", "launchpad"):
        (line,) = [line for line in done.stdout.splitlines() if f"| {what}:" in line]
        assert "/launchpad-code/" in line
