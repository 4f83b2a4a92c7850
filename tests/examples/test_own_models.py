"""The programs in the examples' pages: the system on the digits, and the same with a model of one's own."""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path

import pytest

from examples._shared.places import folder_of
from tests.helpers import scripts

SHOWN: list[str] = ["angel", "ps", "tf_on_spark"]
"""The examples whose pages show both programs."""

MOST_CHANGED = 15


def program(name: str, heading: str) -> str:
    """Return the program that the page of an example shows in the section with this heading."""
    page = (folder_of(name) / "README.md").read_text()
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.M | re.S)
    assert section, f"{name}'s page has no section {heading!r}"
    (block,) = re.findall(r"^```python\n(.*?)^```", section[1], re.M | re.S)
    return str(block)


def printed_by(source: str, folder: Path) -> str:
    """Run the program as a script of processes, and return its output."""
    script = folder / "script.py"
    script.write_text(source)
    done = scripts.run(
        [sys.executable, str(script), "--lp_launch_type=local_mp"],
        cwd=scripts.ROOT,
        env={"PYTHONPATH": str(scripts.ROOT)},
        timeout_s=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.endurance
@pytest.mark.timeout(420)
@pytest.mark.parametrize("name", SHOWN)
def test_an_example_takes_a_torch_model_and_other_data_by_arguments_alone(
    name: str, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    on_digits = program(name, "As a library")
    own = program(name, "With your own model")

    lines = difflib.ndiff(on_digits.splitlines(), own.splitlines())
    changed = sum(line[0] == "+" for line in lines)

    print(f"{name}: {changed} lines are new or changed")
    assert changed <= MOST_CHANGED
    assert "assert " in own  # the program checks its own result
    assert printed_by(on_digits, tmp_path)
    assert printed_by(own, tmp_path)
