"""F17, F19, F20, F22, F51: what goes wrong on Ray in a way of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import launchpad as lp
from launchpad.launch.backends.launch_origin import versions
from launchpad.launch.backends.ray import workers
from tests import nodes
from tests.helpers import scripts
from tests.ray.clusters import Cluster
from tests.waiting import until

pytestmark = pytest.mark.slow

DEADLINE_S = 60.0
AT_ONCE = lp.RestartPolicy(max_restarts=1, backoff=0)


@pytest.fixture(autouse=True)
def cluster(ray_cluster: Cluster, nothing_outlives_its_test: None) -> Cluster:
    """The one that tests share."""
    return ray_cluster


@pytest.fixture
def short_directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


class Server(nodes.Counter):
    """Says who started it, and where its socket is."""

    def ancestors(self) -> list[int]:
        """Its own process, the forkserver, the subreaper, the Ray actor."""
        process = psutil.Process()
        return [process.pid, *(parent.pid for parent in process.parents()[:3])]

    def attempt(self) -> int:
        return lp.current().attempt

    def start_a_daemon(self) -> int:
        """One that has left the worker's group and session."""
        return os.posix_spawn("/bin/sleep", ["sleep", "1000"], os.environ, setsid=True)


def is_dead(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return True


def program_of(restart: lp.RestartPolicy | None = None) -> lp.Program:
    program = lp.Program("faults")
    with program.group("server", restart=restart):
        program.add_node(lp.CourierNode(Server))
    return program


def test_f17_the_socket_of_a_worker_is_taken_away_and_comes_back() -> None:
    with lp.launch(program_of(), "test_ray") as running, running.client("server") as old:
        assert old.add() == 1
        path = Path(old.address.removeprefix("unix:"))

        path.unlink()
        with running.client("server") as new:
            assert new.with_options(timeout_s=DEADLINE_S).add() == 2

        assert old.add() == 3
        until(lambda: "was taken away; it is back" in running.logs("server"))


def test_f22_f51_a_ray_actor_that_is_killed_takes_all_of_its_worker_along_and_has_a_successor() -> (
    None
):
    with lp.launch(program_of(AT_ONCE), "test_ray") as running:
        client: Any = running.client("server")
        pids = [*client.ancestors(), client.start_a_daemon()]
        directory = Path(client.address.removeprefix("unix:")).parent
        actor = pids[3]

        os.kill(actor, signal.SIGKILL)
        until(lambda: running.status()[0].attempt == 2)
        (status,) = running.status()

        assert "its Ray actor on" in status.cause
        assert until(lambda: call_until_answered(client.attempt)) == 2
        until(lambda: all(map(is_dead, pids)) and not directory.exists())


def call_until_answered(call: Callable[[], Any]) -> Any:
    """A call that is in flight when its server dies is lost."""
    with contextlib.suppress(lp.courier.CourierError):
        return call()
    return None


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


def test_a_node_with_another_launchpad_is_named_with_both_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs = {**versions(), "launchpad": "99.0"}
    monkeypatch.setattr(workers, "versions", lambda: theirs)
    running = lp.launch(program_of(), "test_ray")

    with pytest.raises(lp.ProgramFailed) as failed:
        running.wait(DEADLINE_S)

    assert failed.value.outcome.phase == "start"
    cause = failed.value.outcome.cause
    assert f"is not like the launcher: launchpad {lp.__version__} here, 99.0 there." in cause
    assert "Install the launcher's versions on all nodes" in cause


# In scripts: the launcher's own connection, and its death.

PREAMBLE = """
import os, resource, sys, time
import launchpad as lp
from tests.ray.test_ray_faults import Server, program_of
import ray
"""


def script(body: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + body],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=scripts.environment(),
    )


@contextlib.contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[tuple[str, str]]:
    """What it has printed."""
    try:
        yield process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("moment", ["serving", 0.2, 0.5, 1.0])
def test_f51_when_the_launcher_is_killed_nothing_of_the_run_is_left_on_its_nodes(
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
    process = script(body)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "connected\n"
        if moment == "serving":
            assert process.stdout.readline() == "serving\n"
            assert len(all_with(str(runs))) >= 5  # daemon, worker, host, keeper, the actor
        else:
            time.sleep(float(moment))  # no order: any moment will do
    finally:
        process.kill()
        process.communicate()

    def left() -> list[object]:
        return [*all_with(str(runs)), *runs.glob("*")]

    with contextlib.suppress(AssertionError):  # the one below says what there is
        until(lambda: not left())
    assert left() == []


def all_with(value: str) -> list[psutil.Process]:
    """The processes with that in their environment, but for those that Ray keeps for later."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_ours = value in process.environ().values() and process.name() != "ray::IDLE"
            if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def test_f19_a_directory_too_long_for_sockets_is_passed_over_on_every_node(
    tmp_path: Path,
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    body = f"""
ray.init(runtime_env={{"env_vars": {{"TMPDIR": {str(long)!r}}}}}, log_to_driver=False)
with lp.launch(program_of(), "test_ray") as running:
    client = running.client("server")
    print(client.environment("TMPDIR") == {str(long)!r}, client.address)
"""
    with ended(script(body)) as (said, errors):
        assert said.startswith("True unix:/tmp/launchpad-"), errors


def test_f20_and_sound_23_a_node_without_descriptors_is_named_with_the_limit() -> None:
    body = """
def leave_few():
    from launchpad.launch.backends.remote import worker_host
    start = worker_host.start_forkserver
    def with_few(*args, **options):  # counted now: Ray opens and closes some until then
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")), before[1]))
        try:
            return start(*args, **options)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    worker_host.start_forkserver = with_few
ray.init(runtime_env={"worker_process_setup_hook": leave_few}, log_to_driver=False)
running = lp.launch(program_of(), "test_ray")
try:
    running.wait(60)
except lp.ProgramFailed as failed:
    print(failed)
"""
    with ended(script(body)) as (said, errors):
        assert "server-0" in said, errors
        assert "the limit on open files of one process (ulimit -n)" in said, (said, errors)
