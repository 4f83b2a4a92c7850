"""Programs that are defined in the cells of a notebook, run by a real kernel."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs import pages
from tests.helpers import scripts

PARTS = ("program", "run", "status")
PAGE = pages.ROOT / "docs" / "notebooks.md"
EXECUTE = pages.ROOT / "tests" / "helpers" / "execute_notebook.py"

FAILING = """
def fail(server):
    print("about to fail")
    return server.greet("ann") / 2

program = lp.Program("failing")
server = program.add_node(lp.CourierNode(Server), label="server")
program.add_node(lp.PyNode(fail, server), label="client")
lp.run(program, "local_mp")
"""


@pytest.mark.slow
def test_a_program_of_cells_is_drawn_runs_in_processes_and_reports_its_failure(
    tmp_path: Path,
) -> None:
    cells = [pages.snippet(f"docs/snippets/notebook.py#{part}") for part in PARTS]

    program, run, status, failed = execute([*cells, FAILING.strip()], tmp_path)

    (shown,) = program
    assert "".join(shown["data"]["text/vnd.mermaid"]) in PAGE.read_text()
    assert "".join(shown["data"]["image/svg+xml"]).startswith("<svg")
    assert "client ×2" in "".join(shown["data"]["text/plain"])
    assert re.search(r"^client-0 +\| asking …$", text(run), re.M)
    assert run[-1]["data"]["text/plain"] == "['hello ann', 'hello bob']"
    table = "".join(status[-1]["data"]["text/html"])
    assert re.search(r"<td>client-1</td><td>succeeded</td><td>1</td>", table), table
    report = "\n".join(failed[-1]["traceback"])
    assert report.startswith("ProgramFailed: program 'failing' failed: client-0 failed in run")
    assert "TypeError: unsupported operand" in report
    assert 'return server.greet("ann") / 2' in report
    assert "running.py" not in report


LAUNCHES_WHEN_IMPORTED = """
import os
import launchpad as lp

with open("imported", "a") as file:
    file.write(f"{os.getpid()}\\n")

def work():
    print("working")

program = lp.Program("again")
program.add_node(lp.PyNode(work), label="worker")
lp.run(program, "local_mp")
"""


@pytest.mark.slow
def test_a_module_that_launches_when_a_cell_imports_it_launches_once(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LAUNCHES_WHEN_IMPORTED)
    go_there = f"import os, sys; os.chdir({str(tmp_path)!r}); sys.path.insert(0, '')"

    _, (*_, failed) = execute([go_there, "import train"], tmp_path)

    assert failed["ename"] == "ProgramFailed"
    assert "would launch its program once more" in failed["evalue"]
    # By the kernel, and by the worker that was refused.
    assert len((tmp_path / "imported").read_text().splitlines()) == 2


def execute(cells: list[str], folder: Path) -> list[list[dict[str, Any]]]:
    """The outputs of each cell, in a kernel that finds and leaves nothing in the user's home."""
    variables = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    done = subprocess.run(
        [sys.executable, str(EXECUTE)],
        input=json.dumps(cells),
        capture_output=True,
        text=True,
        timeout=110,
        env=scripts.environment(**{name: str(folder / name.lower()) for name in variables}),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def text(outputs: list[dict[str, Any]]) -> str:
    """What a cell has printed."""
    return "".join(each["text"] for each in outputs if each["output_type"] == "stream")
