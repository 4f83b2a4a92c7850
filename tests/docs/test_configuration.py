"""The page "Configuration" has all that can be set from outside, and nothing else."""

from __future__ import annotations

import re

from launchpad import command_line
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "configuration.md").read_text()


def test_each_flag_is_on_the_page() -> None:
    shown = set(re.findall(r"`--(lp_\w+)", PAGE))

    assert shown == {flag.name for flag in command_line.ALL} | {"lp_lunch_type"}


def test_the_page_has_each_environment_variable_that_launchpad_names() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "launchpad").rglob("*.py"))
    named = set(re.findall(r'"((?:LP|LAUNCHPAD)_[A-Z_]+)"', sources))

    assert set(re.findall(r"`((?:LP|LAUNCHPAD)_[A-Z_]+)`", PAGE)) == named
