"""F17, F19, F20, F22, F51: what goes wrong on Ray in a way of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import psutil
import pytest

import launchpad as lp
from launchpad.launch.backends.launcher_info import versions
from launchpad.launch.backends.ray import placement_group, workers
from launchpad.launch.backends.ray.worker_actor import WorkerActor
from launchpad.runtime.commands import AddressesChanged, AnnounceGone
from tests.helpers import scripts
from tests.helpers.hosts import answered, processes_with, program_of
from tests.helpers.programs import failure_of
from tests.ray.clusters import Cluster
from tests.waiting import runs, until

pytestmark = pytest.mark.slow

DEADLINE_S = 60.0
AT_ONCE = lp.RestartPolicy(max_restarts=2, backoff=0)


@pytest.fixture(autouse=True)
def cluster(ray_cluster: Cluster, nothing_outlives_its_test: None) -> Cluster:
    """The one that tests share."""
    return ray_cluster


@pytest.fixture
def short_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


def test_f17_the_socket_of_a_worker_is_taken_away_and_comes_back() -> None:
    with lp.launch(program_of(), "test_ray") as running, running.client("server") as old:
        assert old.add() == 1
        path = Path(old.address.removeprefix("unix:"))

        path.unlink()
        with running.client("server") as new:
            assert new.with_options(timeout_s=DEADLINE_S).add() == 2

        assert old.add() == 3
        until(lambda: "was taken away; it is back" in running.logs("server"))


def test_f22_f51_a_killed_actor_or_forkserver_takes_its_worker_along() -> None:
    with lp.launch(program_of(AT_ONCE), "test_ray") as running:
        client: Any = running.client("server")
        pids = [*client.ancestors()[:4], client.start_a_daemon()]
        processes = [psutil.Process(pid) for pid in pids]
        directory = Path(client.address.removeprefix("unix:")).parent

        os.kill(pids[3], signal.SIGKILL)
        until(lambda: running.status()[0].attempt == 2)
        assert "its Ray actor on" in running.status()[0].cause
        assert answered(client) == 2
        until(lambda: not any(map(runs, processes)) and not directory.exists())

        os.kill(client.ancestors()[1], signal.SIGKILL)
        until(lambda: answered(client) == 3)


def test_f22_a_ray_actor_that_is_killed_for_good_is_named() -> None:
    running = lp.launch(program_of(), "test_ray")
    with running.client("server") as client:
        actor = client.ancestors()[3]

        os.kill(actor, signal.SIGKILL)
        with pytest.raises(lp.ProgramFailed, match="its Ray actor on") as failed:
            running.wait(DEADLINE_S)

    outcome = failed.value.outcome
    assert (outcome.worker, outcome.kind, outcome.phase) == ("server-0", "lost", "run")
    assert running.exit_status() == 6


def test_a_node_with_another_launchpad_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {**versions(), "launchpad": "99.0"}
    monkeypatch.setattr(workers, "versions", lambda: theirs)

    outcome = failure_of(program_of(), "test_ray").outcome

    assert outcome.phase == "start"
    versions_differ = f"is not like the launcher: launchpad {lp.__version__} here, 99.0 there."
    assert versions_differ in outcome.cause
    assert "Install the launcher's versions on all nodes" in outcome.cause


def test_a_worker_for_which_ray_makes_no_actor_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise RuntimeError("no actors today")

    monkeypatch.setattr(workers, "versions", refuse)  # which an actor is made with

    assert "no actors today" in str(failure_of(program_of(), "test_ray"))


@pytest.mark.leaks_by_nature  # Ray keeps the connection by which it first reserved room
def test_a_restart_waits_no_longer_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement_group, "PENDING_S", 0.5)
    with lp.launch(program_of(cpus=4), "test_ray") as first:
        first.client("server").add(1)

        late = failure_of(
            program_of(lp.RestartPolicy(max_restarts=1, backoff=0.1), cpus=4), "test_ray"
        )

    assert "no room on the Ray cluster" in str(late)


def test_commands_are_executed_as_they_were_sent_however_ray_mixes_them() -> None:
    actor = WorkerActor(versions())
    received = Mock()
    actor._workers = received

    async def arrive() -> None:
        await actor.execute_in_order(2, AddressesChanged({"server-0/courier": "there"}))
        await actor.execute_in_order(1, AddressesChanged({"server-0/courier": ""}))
        await actor.execute_in_order(0, AnnounceGone({"server-0": "it has ended"}))

    asyncio.run(arrive())

    assert received.mock_calls == [
        call.execute(AnnounceGone({"server-0": "it has ended"})),
        call.send(AddressesChanged({"server-0/courier": ""})),
        call.send(AddressesChanged({"server-0/courier": "there"})),
    ]


# In scripts: the launcher's own connection, and its death.

PREAMBLE = """
import os, resource, sys, time
import launchpad as lp
from tests.helpers.hosts import program_of
import ray
"""


@pytest.mark.parametrize("moment", ["serving", 0.5])
def test_f51_a_killed_launcher_leaves_nothing_on_nodes(
    moment: str | float, short_directory: Path
) -> None:
    runs = short_directory / "runs"
    body = f"""
ray.init(runtime_env={{"env_vars": {{"LAUNCHPAD_RUNTIME_DIR": {str(runs)!r}}}}}, log_to_driver=False)
print("connected", flush=True)
running = lp.launch(program_of(), "test_ray")
client = running.client("server")
client.start_a_daemon()
print("serving", flush=True)
time.sleep(1000)
"""
    process = scripts.start([sys.executable, "-c", PREAMBLE + body], stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "connected\n"
        if moment == "serving":
            assert process.stdout.readline() == "serving\n"
            assert len(processes_with(str(runs))) >= 5  # daemon, worker, host, keeper, the actor
        else:
            time.sleep(float(moment))  # no order: any moment will do
    finally:
        process.kill()
        process.communicate()

    def left() -> list[object]:
        return [*processes_with(str(runs)), *runs.glob("*")]

    with contextlib.suppress(AssertionError):  # the one below says what there is
        until(lambda: not left())
    assert left() == []


def test_f19_a_directory_too_long_for_sockets_is_passed_over_on_nodes(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    body = f"""
ray.init(runtime_env={{"env_vars": {{"TMPDIR": {str(long)!r}}}}}, log_to_driver=False)
with lp.launch(program_of(), "test_ray") as running:
    client = running.client("server")
    print(client.environment("TMPDIR") == {str(long)!r}, client.address)
"""
    done = scripts.run([sys.executable, "-c", PREAMBLE + body])

    assert done.stdout.startswith("True unix:/tmp/launchpad-"), done.stderr


def test_f20_and_sound_23_a_node_without_descriptors_is_named_with_the_limit() -> None:
    body = """
def leave_few():
    from launchpad.launch.backends.remote import worker_host
    start = worker_host.create_process_workers
    def with_few(*args, **options):  # counted now: Ray opens and closes some until then
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")), before[1]))
        try:
            return start(*args, **options)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    worker_host.create_process_workers = with_few
ray.init(runtime_env={"worker_process_setup_hook": leave_few}, log_to_driver=False)
running = lp.launch(program_of(), "test_ray")
try:
    running.wait(60)
except lp.ProgramFailed as failed:
    print(failed)
"""
    done = scripts.run([sys.executable, "-c", PREAMBLE + body])

    assert "server-0" in done.stdout, done.stderr
    assert "the limit on open files of one process (ulimit -n)" in done.stdout, done.stderr
