"""`python -m tests.prose`, which `make lint` runs, finds what it promises to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import prose


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of one module and one page, in plain English."""
    (tmp_path / "launchpad").mkdir()
    (tmp_path / "launchpad" / "module.py").write_text('"""A module."""\n\nfound = None\n')
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("# A page\n\nThe server closes the connection.\n")
    return tmp_path


def test_plain_english_is_left_alone(project: Path) -> None:
    assert prose.findings(project) == []


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("launchpad/module.py", '"""Whether it is so."""', "headless docstring"),
        ("launchpad/module.py", "# It was tried in vain.", '"in vain"'),
        (
            "launchpad/module.py",
            '"""A port, or none.\n\n    There is to be one.\n    """',
            '"is to be"',
        ),
        ("launchpad/module.py", 'raise ValueError(f"{found} "\n    "is none")', '"is none"'),
        ("docs/page.md", "There was none.", '"was none"'),
        ("docs/page.md", "It must run as such.", '"such"'),
        ("docs/page.md", "Words " * 20, "120 columns"),
        ("docs/page.md", "| a | b | c | d | e |\n|---|---|---|---|---|", "more than 4 columns"),
    ],
)
def test_what_is_planted_is_found(file: str, line: str, complaint: str, project: Path) -> None:
    path = project / file
    if line.startswith('"""Whether'):
        path.write_text(f"{line}\n")
    else:
        path.write_text(f"{path.read_text()}\n{line}\n")

    complaints = [text for _, _, text in prose.findings(project)]

    assert len(complaints) == 1
    assert complaint in complaints[0]


@pytest.mark.parametrize(
    "line",
    [
        "The value is `None`, such as for a list; there are so many that it waits.",
        "```text\nin vain\n```",
        "A code name is left alone: `anew`.",
        f"See [the page]({'long/' * 30}page.md).",
        f"| a | {'word ' * 30} |",
    ],
)
def test_code_names_links_and_rows_of_tables_are_left_alone(line: str, project: Path) -> None:
    page = project / "docs" / "page.md"
    page.write_text(f"{page.read_text()}\n{line}\n")

    assert prose.findings(project) == []
