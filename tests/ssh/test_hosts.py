"""The hosts that a user names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad.launch.backends.ssh.hosts import VARIABLE, Host, parse

FILE = """
# the machines of our room
h1
alice@h2:2222  python=/opt/python address=10.0.0.2   # two network cards
"""
HOSTS = [Host("h1"), Host("h2", "alice", 2222, "/opt/python", "10.0.0.2")]


def test_hosts_are_a_list_a_mapping_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text(FILE)
    options = {"python": "/opt/python", "address": "10.0.0.2"}

    assert parse(["h1", "alice@h2:2222"]) == [Host("h1"), Host("h2", "alice", 2222)]
    assert parse({"h1": None, "alice@h2:2222": options}) == HOSTS
    assert parse(file) == HOSTS
    assert parse(str(file)) == HOSTS
    assert parse(["[fd00::7]:22"]) == [Host("fd00::7", port=22)]


def test_the_environment_names_the_hosts_that_a_script_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "hosts"
    file.write_text(FILE)

    monkeypatch.setenv(VARIABLE, str(file))
    assert parse(None) == HOSTS
    monkeypatch.setenv(VARIABLE, "h1,h2")
    assert parse(None) == [Host("h1"), Host("h2")]
    assert parse(["h3"]) == [Host("h3")]
    monkeypatch.delenv(VARIABLE)
    assert parse(None) == []


@pytest.mark.parametrize(
    ("hosts", "why"),
    [
        (["h1", "h2:x"], "'h2:x' is not a host"),
        (["-oProxyCommand=x"], "'-oProxyCommand=x' is not a host"),
        (["h1", "alice@h1"], "'h1' is there 2 times"),
        ([7], "7 is not a host"),
        (7, "hosts=7: expected a list"),
        ({"h1": {"pyhton": "x"}}, "'h1' has pyhton='x'; there are python, address"),
        ({"h1": "python"}, "'h1' has 'python'; expected options"),
        ("/nowhere/hosts", "hosts='/nowhere/hosts' cannot be read"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_no_host_is_refused_where_it_is_given(hosts: Any, why: str) -> None:
    with pytest.raises(lp.DefinitionError, match=re.escape(why)):
        lp.launch(lp.Program("p"), "ssh", hosts=hosts)


def test_a_mistake_in_a_file_of_hosts_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("h1\n\nh2 /opt/python\n")

    with pytest.raises(
        lp.DefinitionError, match=r"hosts, line 3: .*'/opt/python' is not an option"
    ):
        parse(file)


def test_a_launch_without_hosts_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    program = lp.Program("p")
    program.add_node(lp.PyNode(print), label="node")

    with pytest.raises(lp.DefinitionError, match=r"'ssh' needs hosts: hosts=\['h1', .*LP_HOSTS"):
        lp.plan(program, "ssh")
