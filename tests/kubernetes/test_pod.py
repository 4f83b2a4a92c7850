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
from pathlib import Path
from typing import Any

import portpicker
import psutil
import pytest

import launchpad as lp
from launchpad import outcome
from launchpad.courier.security import certificates
from launchpad.launch.backends.kubernetes import pod_messages
from launchpad.launch.backends.kubernetes.pod_inputs import archives, pod_input
from launchpad.launch.backends.kubernetes.pod_messages import Chunk, PodCommands, Stacks
from launchpad.launch.backends.launcher_info import LauncherInfo, RunSecrets, differences, versions
from launchpad.outcome import Outcome
from launchpad.runtime.events import Ended, Ready
from tests import nodes
from tests.helpers import pod_nodes
from tests.helpers.programs import single
from tests.waiting import until

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30

Begin = Callable[..., subprocess.Popen[bytes]]


class Mounted:
    """The folders that a pod finds, in one of the test's."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, portpicker.pick_unused_port()
        for name in ("given", "run", "state"):
            (folder / name).mkdir(mode=0o700)

    def mount(self, program: lp.Program, grace_s: float = 5.0, **places: str) -> None:
        """What the launcher has for the program's last worker."""
        plan = lp.plan(program, "kubernetes", image="none")
        keys = RunSecrets(os.urandom(32), certificates.make_credentials())
        endpoints = {f"{label}-0/courier": place for label, place in places.items()}
        ours = pod_input.RunConfig(
            plan.program, "kubernetes", keys, LauncherInfo.here(), endpoints, grace_s
        )
        self.add(ours.files())
        self.add_parts("worker", pickle.dumps(plan.workers[-1]))

    def add(self, files: dict[str, bytes]) -> None:
        for name, content in files.items():
            (self.folder / "given" / name).write_bytes(content)

    def add_parts(self, name: str, content: bytes) -> None:
        self.add(
            {pod_input.file_name(name, i): part for i, part in enumerate(pod_input.packed(content))}
        )

    def send_commands(self, requests: PodCommands) -> None:
        self.add({"orders": requests.text().encode()})

    @property
    def printed(self) -> list[bytes]:
        return (self.folder / "log").read_bytes().splitlines()

    @property
    def lines(self) -> list[str]:
        """What the user's code has printed."""
        users = [line for line in self.printed if pod_messages.report_in(line) is None]
        return [pod_messages.unescaped(line).decode() for line in users]

    @property
    def reports(self) -> list[Any]:
        return [r for line in self.printed if (r := pod_messages.report_in(line)) is not None]

    @property
    def termination_message(self) -> Outcome | None:
        return pod_messages.outcome_in((self.folder / "last").read_text())

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
from launchpad.launch.backends.kubernetes.pod import entrypoint
folder = Path({str(mounted.folder)!r})
entrypoint.MOUNTED, entrypoint.WRITABLE, entrypoint.STATE = folder / "given", folder / "run", folder / "state"
entrypoint.TERMINATION_LOG = folder / "last"
entrypoint.READY_PORT = {mounted.port}
"""

    def begin(attempt: int = 1) -> subprocess.Popen[bytes]:
        with (mounted.folder / "log").open("wb") as log:
            command = [sys.executable, "-c", f"{code}entrypoint.main({attempt})"]
            begun.append(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log))
        return begun[-1]

    yield begin
    for process in begun:
        process.kill()
        process.wait()


def test_a_worker_that_ends_well_exits_with_0(mounted: Mounted, begin: Begin) -> None:
    mounted.mount(single(lp.PyNode(pod_nodes.holds, b"abc")))
    mounted.add_parts("code", b"")  # it is not to be sent

    assert begin().wait(DEADLINE_S) == 0

    assert mounted.lines == ["3"]
    assert mounted.reports[0] == Ready("worker-0", 1, runs=True)
    assert mounted.ended.kind == outcome.SUCCEEDED
    assert mounted.termination_message == mounted.ended


def test_sound_06_what_the_script_defines_can_be_pickled_in_a_pod_and_its_source_is_there(
    mounted: Mounted, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = vars(pod_nodes.Net).get("__firstlineno__")
    for each in (pod_nodes.Net, pod_nodes.pickle_a_net):  # as if this were a script
        monkeypatch.setattr(each, "__module__", "__main__")
        monkeypatch.setattr(sys.modules["__main__"], each.__name__, each, raising=False)
    if line is not None:  # from 3.13 on, and forgotten when `__module__` is set
        monkeypatch.setattr(pod_nodes.Net, "__firstlineno__", line, raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", pod_nodes.__file__, raising=False)
    monkeypatch.setitem(pod_nodes.pickle_a_net.__globals__, "__name__", "__main__")
    mounted.mount(single(lp.PyNode(pod_nodes.pickle_a_net)))

    assert begin().wait(DEADLINE_S) == 0

    assert mounted.lines == ["True class Net:"]


def test_its_port_is_open_when_it_is_ready_and_not_before(mounted: Mounted, begin: Begin) -> None:
    resume = mounted.folder / "go_on"
    mounted.mount(single(lp.PyClassNode(pod_nodes.BuiltWhenToldSo, str(resume))))
    process = begin()
    until(lambda: mounted.lines == ["building"])

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", mounted.port), 1).close()
    resume.touch()
    until(lambda: mounted.reports)

    for _ in range(300):  # more than wait in any queue
        socket.create_connection(("127.0.0.1", mounted.port), 5).close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) == 0


def test_a_worker_that_raises_exits_with_1_and_tells_why(mounted: Mounted, begin: Begin) -> None:
    mounted.mount(single(lp.PyNode(pod_nodes.raises)))

    assert begin().wait(DEADLINE_S) == 1

    assert mounted.ended.cause == "ValueError: boom"
    assert 'raise ValueError("boom")' in mounted.ended.traceback
    assert mounted.lines[0] == "the last line"
    assert mounted.termination_message == mounted.ended


def test_a_worker_that_is_killed_is_named_by_its_signal(mounted: Mounted, begin: Begin) -> None:
    mounted.mount(single(lp.PyNode(pod_nodes.dies)))

    assert begin().wait(DEADLINE_S) == outcome.CRASHED

    assert (mounted.ended.signal, mounted.ended.kind) == ("SIGKILL", outcome.FAILED)


def test_sigterm_stops_the_worker_in_good_order(mounted: Mounted, begin: Begin) -> None:
    mounted.mount(single(lp.PyNode(pod_nodes.waits)))
    process = begin()
    until(lambda: "waiting" in mounted.lines)

    process.send_signal(signal.SIGTERM)

    assert process.wait(DEADLINE_S) == 0
    assert mounted.ended.kind == outcome.STOPPED


def test_a_worker_that_does_not_stop_is_killed_in_time(mounted: Mounted, begin: Begin) -> None:
    mounted.mount(single(lp.PyNode(pod_nodes.never_stops)), grace_s=0.2)
    process = begin()
    until(lambda: "waiting False" in mounted.lines)

    process.send_signal(signal.SIGTERM)

    process.wait(DEADLINE_S)
    assert (mounted.ended.kind, mounted.ended.hung) == (outcome.STOPPED, True)


def test_an_image_with_another_version_says_what_to_do(mounted: Mounted, begin: Begin) -> None:
    mounted.mount(single(lp.PyNode(pod_nodes.waits)))
    mounted.add({pod_input.VERSIONS: json.dumps({**versions(), "Python": "99.0"}).encode()})

    assert begin().wait(DEADLINE_S) == outcome.NOT_THERE

    assert mounted.ended.phase == "start"
    differs = f"the image is not like the launcher: Python {versions()['Python']} here, 99.0 there"
    assert mounted.ended.cause == differs
    assert "make an image with the launcher's versions" in mounted.ended.hint


@pytest.mark.parametrize("name", ["Python", "cloudpickle", "launchpad"])
def test_a_version_that_differs_or_is_not_told_is_named(name: str) -> None:
    ours = versions()
    others = {other: version for other, version in ours.items() if other != name}

    assert differences(ours) == ""
    assert differences({**ours, name: "99.0"}) == f"{name} {ours[name]} here, 99.0 there"
    assert differences(others) == f"{name} {ours[name]} here, an unknown version there"


def test_what_a_worker_leaves_behind_is_ended_with_it(mounted: Mounted, begin: Begin) -> None:
    mounted.mount(single(lp.PyNode(pod_nodes.leaves_a_process)))

    assert begin().wait(DEADLINE_S) == 0

    assert not psutil.pid_exists(int(mounted.lines[0]))


def test_a_worker_ends_with_the_first_process_of_its_pod(mounted: Mounted, begin: Begin) -> None:
    mounted.mount(single(lp.PyNode(pod_nodes.starts_a_process_and_waits)))
    process = begin()
    until(lambda: mounted.lines)
    first = psutil.Process(process.pid)
    assert first.num_threads() == 1
    below = first.children(recursive=True)
    assert len(below) == 2
    assert below[0].name() == "worker-0"

    process.kill()

    until(lambda: not any(each.is_running() for each in below))


def test_stacks_come_on_request_and_before_a_kill(mounted: Mounted, begin: Begin) -> None:
    mounted.mount(single(lp.PyNode(pod_nodes.waits)))
    process = begin()
    until(lambda: "waiting" in mounted.lines)

    mounted.send_commands(PodCommands(stacks=1))
    until(lambda: [r for r in mounted.reports if isinstance(r, Stacks)])
    stacks = next(r for r in mounted.reports if isinstance(r, Stacks))
    assert stacks.number == 1
    assert "in waits" in stacks.text
    assert not any("in waits" in line for line in mounted.lines)

    mounted.send_commands(PodCommands(stacks=1, kill=True))
    process.wait(DEADLINE_S)
    assert mounted.ended.kind == outcome.STOPPED
    assert any("in waits" in line for line in mounted.lines)


def test_what_is_in_a_state_directory_is_handed_on(mounted: Mounted, begin: Begin) -> None:
    mounted.mount(single(lp.PyNode(pod_nodes.remembers)))
    begin().wait(DEADLINE_S)
    pieces = [r for r in mounted.reports if isinstance(r, Chunk)]
    assert all(len(line) < 16_000 for line in mounted.printed)

    (mounted.folder / "state" / "notes").unlink()
    mounted.add_parts("state", pod_messages.joined(pieces))
    begin(attempt=2).wait(DEADLINE_S)

    assert (mounted.folder / "state" / "notes").read_text() == "attempt 1\nattempt 2\n"


def test_a_state_directory_on_a_volume_is_left_as_it_is(mounted: Mounted, begin: Begin) -> None:
    mounted.mount(single(lp.PyNode(pod_nodes.remembers)))
    old = mounted.folder / "old"
    old.mkdir()
    (old / "notes").write_text("from elsewhere\n")
    mounted.add_parts("state", archives.packed(old))
    (mounted.folder / "state" / "notes").write_text("kept\n")

    begin().wait(DEADLINE_S)

    assert (mounted.folder / "state" / "notes").read_text() == "kept\nattempt 1\n"


def test_a_worker_that_is_told_who_is_gone_fails_its_calls(mounted: Mounted, begin: Begin) -> None:
    program = lp.Program("pod")
    server = program.add_node(lp.CourierNode(nodes.Counter), label="server")
    with program.group("one", restart=lp.RestartPolicy()):
        program.add_node(lp.PyClassNode(pod_nodes.Caller, server, 1))
    mounted.mount(program, server="tcp:127.0.0.1:9")
    begin()

    mounted.send_commands(PodCommands(gone={"server-0": "it has failed for good"}))

    until(lambda: "WorkerFailed" in mounted.lines)
