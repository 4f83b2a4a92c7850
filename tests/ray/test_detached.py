"""A program that is left on the cluster runs on without its script, and is found again."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import launchpad as lp
from launchpad.launch import registry
from launchpad.launch.backends.ray import backend, cluster
from tests import nodes
from tests.ray.clusters import Cluster

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0

SCRIPT = """
import sys
import launchpad as lp
from tests import nodes
from tests.helpers import endless_printer

program = lp.Program("left")
server = program.add_node(lp.CourierNode(nodes.Counter), label="server")
with program.group("talker"):
    for number in range(2):
        program.add_node(lp.PyNode(endless_printer.talk, server, number))
print(lp.launch(program, "ray", detach=True).run_id)
"""


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python as a user does."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@pytest.fixture(scope="module")
def left_behind(ray_cluster: Cluster) -> str:
    """The id of a run whose script has ended."""
    done = python("-c", SCRIPT)
    assert done.returncode == 0, done.stderr
    (left,) = [each for each in registry.detached() if each.run_id == done.stdout.strip()]
    deadline = time.monotonic() + DEADLINE_S
    while {row.state for row in left.status()} != {"running"}:
        assert time.monotonic() < deadline, left.status()
        time.sleep(0.1)
    return left.run_id


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """Where nothing on the disk tells of the run, as on another machine."""
    return {
        "LAUNCHPAD_RUNTIME_DIR": f"/tmp/lp-{os.getpid()}",
        "LAUNCHPAD_LOGGING_DIR": str(tmp_path),
    }


def test_a_program_that_was_left_is_found_again_read_and_stopped(
    left_behind: str, elsewhere: dict[str, str]
) -> None:
    listed = python("-m", "launchpad", "ps", **elsewhere)
    assert left_behind in listed.stdout, listed.stderr
    assert "3 running" in listed.stdout

    shown = python("-m", "launchpad", "ps", left_behind, "--json", **elsewhere)
    found = json.loads(shown.stdout)
    assert {edge["server"] for edge in found["edges"]} == {"server-0"}, shown.stderr
    assert all(worker["process"]["memory_bytes"] > 1e6 for worker in found["workers"])

    logs = python("-m", "launchpad", "logs", left_behind, "talker-0", **elsewhere)
    assert re.search(r"\d", logs.stdout), logs.stderr

    stacks = python("-m", "launchpad", "stacks", left_behind, "talker-1", **elsewhere)
    assert "talk" in stacks.stdout, stacks.stderr

    drawn = python("-m", "launchpad", "graph", left_behind, **elsewhere)
    assert "talker" in drawn.stdout, drawn.stderr

    trace = elsewhere["LAUNCHPAD_LOGGING_DIR"] + "/trace.json"
    traced = python(
        "-m", "launchpad", "trace", left_behind, "--seconds=1", "-o", trace, **elsewhere
    )
    assert "written to" in traced.stdout, traced.stderr

    restarted = python("-m", "launchpad", "restart", left_behind, "talker-0", **elsewhere)
    assert "attempt 2 began" in restarted.stdout, restarted.stderr

    stopped = python("-m", "launchpad", "stop", left_behind, **elsewhere)
    assert stopped.returncode == 0, stopped.stderr
    assert "stopped after" in stopped.stdout


@pytest.mark.leaks_by_nature  # Ray's connection to a launcher that is there for a minute yet
def test_the_launching_script_can_wait_for_it_and_hears_of_its_failure(
    ray_cluster: Cluster,
) -> None:
    program = lp.Program("left")
    program.add_node(lp.PyNode(nodes.fail_at_once, "on purpose"), label="failing")

    detached = lp.launch(program, "ray", detach=True)

    with pytest.raises(lp.ProgramFailed, match="on purpose") as failed:
        detached.wait(timeout_s=DEADLINE_S)
    assert failed.value.worker == "failing-0"
    assert [row.state for row in detached.status()] == ["failed"]
    assert "on purpose" in detached.logs("failing-0")


def test_what_ends_with_its_script_cannot_be_left() -> None:
    program = lp.Program("left")
    program.add_node(lp.CourierNode(nodes.Counter), label="server")

    with pytest.raises(lp.LaunchError, match="'local_mp' ends with its script"):
        lp.launch(program, "local_mp", detach=True)


class Deaf:
    """In the place of a launcher that hangs."""

    def record(self) -> None:
        """Never says who it is."""
        time.sleep(DEADLINE_S)


class Well(Deaf):
    """In the place of one that does not."""

    def record(self) -> dict[str, Any]:  # type: ignore[override]
        """Of no run."""
        plain = dict.fromkeys(("program", "launch_type", "runtime", "logs"), "-")
        return {"run_id": "well", "pid": 1, "began": 0.0, "workers": {}, **plain}


@pytest.mark.leaks_by_nature  # Ray's connections to the two
def test_a_launcher_that_hangs_hides_no_other(
    ray_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setattr(backend, "_ANSWER_S", 2.0)
    named = {"launcher-a": Deaf, "launcher-b": Well}
    actors = [
        ray.remote(kind).options(name=name, namespace=cluster.NAMESPACE, num_cpus=0).remote()
        for name, kind in named.items()
    ]
    ray.get(actors[1].record.remote(), timeout=DEADLINE_S)

    found = [each.run_id for each in registry.detached()]

    for actor in actors:
        ray.kill(actor)
    cluster.release()  # asking has connected once more
    assert "well" in found


@pytest.mark.leaks_by_nature  # Ray's connection to the launcher
def test_a_launcher_may_take_its_time_to_begin(
    ray_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = lp.Program("left")
    program.add_node(lp.CourierNode(nodes.Counter), label="server")

    with monkeypatch.context() as patch:
        patch.setattr(backend, "_ANSWER_S", 0.001)
        detached = lp.launch(program, "ray", detach=True)
    detached.stop()

    assert detached.has_ended()


def test_nothing_is_left_on_a_cluster_that_ends_with_the_script() -> None:
    script = SCRIPT.replace(
        "import launchpad as lp", "import launchpad as lp, ray; ray.init('local')"
    )

    done = python("-c", script, RAY_ADDRESS="")

    assert "needs a Ray cluster that outlives this script" in done.stderr


def test_what_is_connected_by_rays_client_is_told_where_to_launch() -> None:
    done = python("-c", SCRIPT, RAY_ADDRESS="ray://127.0.0.1:10001")

    assert "cannot be used through Ray's client (ray://127.0.0.1:10001)" in done.stderr
