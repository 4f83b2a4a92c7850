"""How a worker on another host finds the user's code: the project goes with the program."""

from __future__ import annotations

import sys
from pathlib import Path

from launchpad.launch.backends.ray import cluster
from tests.helpers import scripts
from tests.ray.clusters import Cluster

SCRIPT = """
import inspect, pickle
import launchpad as lp
from launchpad.launch.backends.ray import cluster
import of_mine

class Net:
    pass

def run():
    of_mine.tell()
    print("net:", type(pickle.loads(pickle.dumps(Net()))) is Net, inspect.getsource(Net))

here = cluster.here
cluster.here = lambda: (here()[0], "192.0.2.99")    # as if all nodes were other hosts

program = lp.Program("far")
program.add_node(lp.PyNode(run), label="far")
lp.launch(program, "ray")
"""

MODULE = """
import os
import launchpad

def tell():
    print("mine:", __file__)
    print("launchpad:", launchpad.__file__)
    print("data:", open("data.txt").read())
"""


def test_sound_06_a_host_without_our_code_gets_it(ray_cluster: Cluster, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "script.py").write_text(SCRIPT)
    (project / "of_mine.py").write_text(MODULE)
    (project / "data.txt").write_text("42")

    done = scripts.run([sys.executable, "script.py"], cwd=project)

    assert done.returncode == 0, done.stderr
    assert "data: 42" in done.stdout
    assert "working_dir_files" in line(done.stdout, "mine:")
    assert "py_modules_files" in line(done.stdout, "launchpad:")
    assert "net: True class Net:" in done.stdout


def line(text: str, word: str) -> str:
    (found,) = [line for line in text.splitlines() if word in line]
    return found


def test_what_is_no_code_of_the_project_stays_here(tmp_path: Path) -> None:
    sent = cluster.project(tmp_path)

    assert sent["working_dir"] == str(tmp_path)
    assert {".git", ".venv"} <= set(sent["excludes"])
