"""What type checkers know of a program; `make types` asks them.

The files in `tests/types` are never run. A line of theirs is an error to every checker if, and only if,
it ends in `# rejected`; what may follow, `# rejected: "stepp"`, is part of what the checker says.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import launchpad as lp

ROOT = Path(__file__).resolve().parents[1]
FILES = [*sorted((ROOT / "tests" / "types").glob("*.py")), ROOT / "docs" / "snippets" / "typed.py"]


class Error(NamedTuple):
    """What a checker says of a line."""

    file: Path
    line: int
    message: str


def mypy(files: list[Path], directory: Path) -> list[Error]:
    """What `mypy --strict` finds in the files."""
    options = ["--strict", "--follow-imports=silent", "--explicit-package-bases", "--output=json"]
    places = ["--config-file=", f"--cache-dir={directory}", *map(str, files)]
    rows = map(json.loads, _run("mypy", *options, *places).splitlines())
    return [
        Error(ROOT / row["file"], row["line"], row["message"])
        for row in rows
        if row["severity"] == "error"
    ]


def pyright(files: list[Path], _: Path) -> list[Error]:
    """What pyright finds in the files, with the settings that it has by itself."""
    printed = _run("pyright", f"--pythonpath={sys.executable}", "--outputjson", *map(str, files))
    return [
        Error(Path(row["file"]), row["range"]["start"]["line"] + 1, row["message"])
        for row in json.loads(printed)["generalDiagnostics"]
        if row["severity"] == "error"
    ]


def _run(module: str, *arguments: str) -> str:
    pytest.importorskip(module, reason=f"no {module} here: pip install '.[dev]'")
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def marks(files: list[Path]) -> list[Error]:
    """The lines that are marked as errors, with what is to be said of them."""
    return [
        Error(file, number, mark[1] or "")
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if (mark := re.search(r"  # rejected(?:: (.+))?$", line))
    ]


@pytest.mark.types
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_type_checkers_find_the_errors_that_are_marked_and_no_others(
    checker: Callable[[list[Path], Path], list[Error]], tmp_path: Path
) -> None:
    every_name = tmp_path / "every_name.py"
    every_name.write_text("\n".join(["import launchpad as lp", *(f"lp.{n}" for n in lp.__all__)]))

    errors = checker([*FILES, every_name], tmp_path)

    expected = marks(FILES)
    places = {mark[:2] for mark in expected}
    assert len(expected) > 20
    assert [error for error in errors if error[:2] not in places] == []
    for mark in expected:
        said = [error.message for error in errors if error[:2] == mark[:2]]
        assert any(mark.message in message for message in said), (mark, said)


def test_at_run_time_the_type_of_clients_is_their_class() -> None:
    client = lp.courier.Client("inproc:nobody")

    assert isinstance(client, lp.CourierClient)
    assert lp.CourierClient[int] == lp.courier.Client[int]
