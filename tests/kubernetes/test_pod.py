"""What runs in a worker's container, run here: folders in the place of mounts, a file in that of the log."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import portpicker
import pytest

import launchpad as lp
from launchpad import outcome
from launchpad.courier.trust import certificates
from launchpad.launch.backend import Ended, Ready
from launchpad.launch.backends.kubernetes.post import baggage, letters, parcels, shared
from launchpad.launch.backends.kubernetes.post.letters import Baggage, Stacks, Wishes
from launchpad.launch.backends.origin import Keys, Origin
from launchpad.outcome import Outcome
from tests import nodes
from tests.kubernetes import far_nodes
from tests.waiting import until

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30

Begin = Callable[..., subprocess.Popen[bytes]]


class Mounted:
    """The folders that a pod finds, in one of the test's."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, portpicker.pick_unused_port()
        for name in ("given", "run", "state"):
            (folder / name).mkdir()

    def give(self, program: lp.Program, grace_s: float = 5.0) -> None:
        """What the launcher has for the program's only worker."""
        plan = lp.plan(program, "kubernetes", image="none")
        keys = Keys(os.urandom(32), certificates.make_credentials())
        ours = shared.Shared(plan.program, "kubernetes", keys, Origin.here(), {}, grace_s)
        self.add(shared.files(ours))
        self.add_parts("worker", pickle.dumps(plan.workers[0]))

    def add(self, files: dict[str, bytes]) -> None:
        for name, content in files.items():
            (self.folder / "given" / name).write_bytes(content)

    def add_parts(self, name: str, content: bytes) -> None:
        self.add(
            {parcels.file_name(name, i): part for i, part in enumerate(parcels.packed(content))}
        )

    def wish(self, wishes: Wishes) -> None:
        self.add({"orders": wishes.text().encode()})

    @property
    def printed(self) -> list[bytes]:
        return (self.folder / "log").read_bytes().splitlines()

    @property
    def lines(self) -> list[str]:
        """What the user's code has printed."""
        users = [line for line in self.printed if letters.report_in(line) is None]
        return [letters.unescaped(line).decode() for line in users]

    @property
    def reports(self) -> list[Any]:
        return [r for line in self.printed if (r := letters.report_in(line)) is not None]

    @property
    def last_words(self) -> Outcome | None:
        return letters.outcome_in((self.folder / "last").read_text())

    @property
    def ended(self) -> Outcome:
        outcomes: list[Outcome] = [r.outcome for r in self.reports if isinstance(r, Ended)]
        assert len(outcomes) == 1
        return outcomes[0]


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path)


@pytest.fixture
def begin(mounted: Mounted) -> Iterator[Begin]:
    """Starts the container's first process."""
    begun: list[subprocess.Popen[bytes]] = []
    code = f"""
from pathlib import Path
from launchpad.launch.backends.kubernetes.pod import pod, readiness
folder = Path({str(mounted.folder)!r})
pod.GIVEN, pod.WRITABLE, pod.STATE = folder / "given", folder / "run", folder / "state"
pod.LAST_WORDS = folder / "last"
readiness.READY_PORT = pod.READY_PORT = {mounted.port}
"""

    def begin(attempt: int = 1) -> subprocess.Popen[bytes]:
        with (mounted.folder / "log").open("wb") as log:
            command = [sys.executable, "-c", f"{code}pod.main({attempt})"]
            begun.append(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log))
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.wait()


def single(function: Any, *arguments: Any) -> lp.Program:
    program = lp.Program("pod")
    program.add_node(lp.PyNode(function, *arguments), label="one")
    return program


def test_a_worker_that_ends_well_exits_with_0_and_says_so_twice(
    mounted: Mounted, begin: Begin
) -> None:
    mounted.give(single(far_nodes.holds, b"abc"))

    assert begin().wait(DEADLINE_S) == 0

    assert mounted.lines == ["3"]
    assert mounted.reports[0] == Ready("one-0", 1, runs=True)
    assert mounted.ended.kind == outcome.SUCCEEDED
    assert mounted.last_words == mounted.ended


def test_a_pod_that_is_sent_no_code_finds_what_is_there(mounted: Mounted, begin: Begin) -> None:
    mounted.give(single(far_nodes.holds, b"abc"))
    mounted.add_parts("code", b"")

    assert begin().wait(DEADLINE_S) == 0


def test_its_port_is_open_when_it_is_ready_and_not_before(mounted: Mounted, begin: Begin) -> None:
    go_on = mounted.folder / "go_on"
    program = lp.Program("pod")
    program.add_node(lp.PyClassNode(far_nodes.BuiltWhenToldSo, str(go_on)), label="one")
    mounted.give(program)
    process = begin()
    until(lambda: mounted.lines == ["building"])

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", mounted.port), 1).close()
    go_on.touch()
    until(lambda: mounted.reports)

    for _ in range(300):  # more than wait in any queue
        socket.create_connection(("127.0.0.1", mounted.port), 5).close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 0


def test_a_worker_that_raises_exits_with_1_and_tells_why(mounted: Mounted, begin: Begin) -> None:
    mounted.give(single(far_nodes.raises))

    assert begin().wait(DEADLINE_S) == 1

    assert mounted.ended.cause == "ValueError: boom"
    assert 'raise ValueError("boom")' in mounted.ended.traceback
    assert mounted.lines[0] == "the last line"
    assert mounted.last_words == mounted.ended


def test_a_worker_that_is_killed_is_named_by_its_signal(mounted: Mounted, begin: Begin) -> None:
    mounted.give(single(far_nodes.dies))

    assert begin().wait(DEADLINE_S) == outcome.CRASHED

    assert (mounted.ended.signal, mounted.ended.kind) == ("SIGKILL", outcome.FAILED)


def test_sigterm_stops_the_worker_in_good_order(mounted: Mounted, begin: Begin) -> None:
    mounted.give(single(far_nodes.waits))
    process = begin()
    until(lambda: "waiting" in mounted.lines)

    process.send_signal(signal.SIGTERM)

    assert process.wait(DEADLINE_S) == 0
    assert mounted.ended.kind == outcome.STOPPED


def test_a_worker_that_is_deaf_is_killed_when_its_grace_is_over(
    mounted: Mounted, begin: Begin
) -> None:
    program = lp.Program("pod")
    program.add_node(lp.PyClassNode(nodes.DeafLoop), label="one")
    mounted.give(program, grace_s=0.2)
    process = begin()
    until(lambda: mounted.reports)

    process.send_signal(signal.SIGTERM)

    process.wait(DEADLINE_S)
    assert mounted.ended.kind == outcome.STOPPED


def test_an_image_with_another_python_says_what_differs(mounted: Mounted, begin: Begin) -> None:
    mounted.give(single(far_nodes.waits))
    theirs = {**shared.versions(), "Python": "3.99"}
    mounted.add({shared.VERSIONS: json.dumps(theirs).encode()})

    assert begin().wait(DEADLINE_S) == outcome.NOT_THERE

    assert mounted.ended.phase == "start"
    assert "the image is not like the launcher: Python 3." in mounted.ended.cause
    assert "3.99 there" in mounted.ended.cause


def test_stacks_come_when_they_are_wished_for(mounted: Mounted, begin: Begin) -> None:
    mounted.give(single(far_nodes.waits))
    begin()
    until(lambda: "waiting" in mounted.lines)

    mounted.wish(Wishes(stacks=1))
    until(lambda: [r for r in mounted.reports if isinstance(r, Stacks)])

    stacks = next(r for r in mounted.reports if isinstance(r, Stacks))
    assert stacks.number == 1
    assert "in waits" in stacks.text


def test_a_worker_that_is_to_be_killed_leaves_its_stacks_in_its_log(
    mounted: Mounted, begin: Begin
) -> None:
    mounted.give(single(far_nodes.waits))
    process = begin()
    until(lambda: "waiting" in mounted.lines)

    mounted.wish(Wishes(kill=True))

    process.wait(DEADLINE_S)
    assert mounted.ended.kind == outcome.STOPPED
    assert any("in waits" in line for line in mounted.lines)


def test_what_a_worker_leaves_in_its_state_directory_is_handed_on_to_the_next(
    mounted: Mounted, begin: Begin
) -> None:
    mounted.give(single(far_nodes.remembers))
    begin().wait(DEADLINE_S)
    pieces = [r for r in mounted.reports if isinstance(r, Baggage)]
    assert all(len(line) < 16_000 for line in mounted.printed)

    (mounted.folder / "state" / "notes").unlink()
    mounted.add_parts("state", letters.joined(pieces))
    begin(attempt=2).wait(DEADLINE_S)

    assert (mounted.folder / "state" / "notes").read_text() == "attempt 1\nattempt 2\n"


def test_a_state_directory_on_a_volume_is_left_as_it_is(mounted: Mounted, begin: Begin) -> None:
    mounted.give(single(far_nodes.remembers))
    old = mounted.folder / "old"
    old.mkdir()
    (old / "notes").write_text("from elsewhere\n")
    mounted.add_parts("state", baggage.packed(old))
    (mounted.folder / "state" / "notes").write_text("kept\n")

    begin().wait(DEADLINE_S)

    assert (mounted.folder / "state" / "notes").read_text() == "kept\nattempt 1\n"


def test_a_worker_that_is_told_who_is_gone_fails_its_calls_at_once(
    mounted: Mounted, begin: Begin
) -> None:
    program = lp.Program("pod")
    server = program.add_node(lp.CourierNode(nodes.Counter), label="server")
    program.add_node(lp.PyClassNode(far_nodes.Caller, server, 1), label="one")
    plan = lp.plan(program, "kubernetes", image="none")
    keys = Keys(os.urandom(32), certificates.make_credentials())
    places = {"server-0/courier": "tcp:127.0.0.1:9"}
    ours = shared.Shared(plan.program, "kubernetes", keys, Origin.here(), places, 5.0)
    mounted.add(shared.files(ours))
    mounted.add_parts("worker", pickle.dumps(replace(plan.workers[1], restart=lp.RestartPolicy())))
    begin()

    mounted.wish(Wishes(gone={"server-0": "it has failed for good"}))

    until(lambda: "WorkerFailed" in mounted.lines)
