"""Each mechanism has one home. What a second version of it would look like is refused everywhere else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

import launchpad

PACKAGE = Path(launchpad.__file__).parent


@dataclass(frozen=True)
class Home:
    """Where a mechanism is.

    Attributes:
        mechanism: Its name.
        files: The files or folders below `launchpad/` that make it up.
        second: A regular expression that matches a line of code of a second version.
    """

    mechanism: str
    files: tuple[str, ...]
    second: str


HOMES = [
    Home(
        "formatting of sizes and times",
        ("courier/formatting.py",),
        second=r"\b[KMGT]iB['\"]|\bkB['\"]|/ ?(2\*\*[1-5]0|1e6:|1024 ?\*\*)|^def in_words\(",
    ),
    Home(
        "commands to workers",
        ("runtime/commands.py",),
        second=r"class (Start|Stop|Kill)Worker\b|def (announce_\w+|skip_grace)\(",
    ),
    Home(
        "workers to be run",
        ("launch/plan.py", "launch/worker/"),
        second=r"class (\w*Worker\w*(Draft|Spec|Args)|SpawnArgs)\b|def context_of\(",
    ),
    Home(
        "nested values",
        ("courier/trees.py", "courier/light_dataclass.py", "runtime/user_code.py"),
        second=r"__dataclass_fields__|__attrs_attrs__|dataclasses\.is_dataclass|numpy\.ma\b"
        r"|def (_?flatten|_?unflatten|_?leaves_of|_?tree_map|_?map_leaves|_?rebuilt)\(",
    ),
    Home(
        "waits at a server",
        ("services/waiting.py",),
        second=r"class _?(Changes|Turn|Waiter)\b|\bwakers\b|def within\(",
    ),
    Home(
        "requests that run once",
        ("services/requests.py",),
        second=r"_last_added|_REMEMBERED_REQUESTS|def once\(|number (==|<=) (self\.number|last)\b",
    ),
    Home(
        "surviving a fork",
        # Shared memory needs the moment before the fork, too.
        ("courier/fork.py", "courier/shm/receiver.py"),
        second=r"register_at_fork\(|_at_fork_reinit\(",
    ),
    Home(
        "compression",
        ("courier/codec/compression.py", "courier/protocol/framing.py"),
        second=r"\bCOMPRESSED\b|compression\.(un)?pack\(",
    ),
    Home(
        "retry",
        ("courier/client/call.py",),
        second=r"options\.idempotent\b|method in \S*\.idempotent\b|class NotRun\b|\bMAX_TRIES = |\btries \+= "
        r"|def _?(may_repeat|next_pause|check_retry)\(",
    ),
    Home(
        "watch for an iterator that blocks",
        ("courier/streams/stepping.py",),
        second=r"class \w*(StallClock|LoopFlush)\b|def _?flush_soon\(|_UNWATCH_S =",
    ),
    Home(
        "holding up of messages",
        ("courier/transport/link.py",),
        second=r"class \w*(Link(ed)?Channel|Bandwidth|Relay)\b",
    ),
    Home(
        "calls within a process",
        ("courier/transport/inprocess.py",),
        second=r"class (Inprocess|Local)(Channel|Call|Futures?)\b|def accept_local_\w+\(",
    ),
    Home(
        "what counts as a number",
        ("courier/checks.py",),
        second=r"not isinstance\([\w.]+, bool\)|type\([\w.]+\) is int\b|def _is_(number|count)\(",
    ),
]


@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.mechanism)
def test_a_mechanism_has_one_home(home: Home) -> None:
    second = [
        f"launchpad/{path}:{number}: {line.strip()}"
        for path in sorted(p.relative_to(PACKAGE).as_posix() for p in PACKAGE.rglob("*.py"))
        if not path.startswith(home.files)
        for number, line in enumerate((PACKAGE / path).read_text().splitlines(), 1)
        if re.search(home.second, line)
    ]

    assert second == [], f"{home.mechanism} is in {' and '.join(home.files)}"


@pytest.mark.parametrize("home", HOMES, ids=lambda home: home.mechanism)
def test_the_home_of_a_mechanism_exists(home: Home) -> None:
    assert [name for name in home.files if not (PACKAGE / name).exists()] == []
