"""What is installed is called `launchpad-graph`: on PyPI, `launchpad` is a project of other people."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import launchpad as lp
from launchpad.courier import extras

ROOT = Path(__file__).parents[1]

NAME = r"(?<![\w./-])launchpad(?![\w./-])"
AN_EXTRA = rf"{NAME} *\[[a-z{{]"
A_COMMAND = rf"\b(?:pip3?|uv|pipx|poetry|pdm) +(?:install|add|download)\b[^\n`]*?{NAME}"
A_REQUIREMENT = rf"{NAME} *(?:[<>=~!]=|@ *(?:git|http|file))"
ASKS = re.compile("|".join((AN_EXTRA, A_COMMAND, A_REQUIREMENT)))


def requests_for_launchpad(file: str, text: str) -> Iterator[str]:
    """Where a file asks for a distribution of that name."""
    yield from (found[0] for found in ASKS.finditer(text.replace("\\\n", "  ")))
    if file.endswith("pyproject.toml"):
        project = tomllib.loads(text)["project"]
        lists = [project["dependencies"], *project.get("optional-dependencies", {}).values()]
        yield from (each for required in lists for each in required if each == "launchpad")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.md", "pip install 'launchpad{}[tls]'"),
        ("a.py", "f'Run: python -m pip install -U launchpad{}, which has it'"),
        ("Dockerfile", "RUN pip install --no-cache-dir \\\n  launchpad{}"),
        ("a.py", "'`launchpad{}[ray]` is needed'"),
        ("requirements.txt", "launchpad{}==0.1.0"),
        ("pyproject.toml", "[project]\ndependencies = ['launchpad{}']"),
    ],
)
def test_a_file_that_asks_for_another_projects_name_is_noticed(file: str, text: str) -> None:
    assert list(requests_for_launchpad(file, text.format("")))
    assert not list(requests_for_launchpad(file, text.format("-graph")))


def test_no_file_asks_for_another_projects_distribution() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("which files belong to it is known in a checkout only")
    command = ["git", "ls-files", "-z", "--", ".", f":!{Path(__file__).relative_to(ROOT)}"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    files = {file: ROOT / file for file in listed.stdout.split("\0") if (ROOT / file).is_file()}

    found = {
        file: asks
        for file, path in files.items()
        if (asks := list(requests_for_launchpad(file, path.read_text(errors="replace"))))
    }

    assert len(files) > 500
    assert found == {}


def test_errors_call_the_project_as_it_is_called() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert (project["name"], project["version"]) == (extras.DISTRIBUTION, lp.__version__)
