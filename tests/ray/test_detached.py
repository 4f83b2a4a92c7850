"""A program that is left on the cluster runs on without its script, and is found again."""

from __future__ import annotations

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
from tests.waiting import until

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


@pytest.mark.leaks_by_nature  # Ray's connection to the launcher
def test_a_program_that_was_left_is_found_and_stopped(ray_cluster: Cluster, tmp_path: Path) -> None:
    done = python("-c", SCRIPT)
    assert done.returncode == 0, done.stderr
    run_id = done.stdout.strip()
    (left,) = [each for each in registry.detached() if each.run_id == run_id]
    until(lambda: {row.state for row in left.status()} == {"running"})

    metrics = left.metrics()
    assert {row.server for row in metrics.edges.of()} == {"server-0"}
    assert all(worker.process.memory_bytes > 1e6 for worker in metrics.workers)
    assert "talk" in left.stacks(["talker-1"])["talker-1"]
    assert "talker" in str(left.picture())
    assert left.trace(1.0).missing == {}
    left.ask_to_restart("talker-0")
    until(lambda: [row.attempt for row in left.status()] == [1, 2, 1])
    # Where nothing on the disk tells of the run, as on another machine.
    elsewhere = {
        "LAUNCHPAD_RUNTIME_DIR": f"/tmp/lp-{os.getpid()}",
        "LAUNCHPAD_LOGGING_DIR": str(tmp_path),
    }
    for arguments, said in (
        (["ps"], rf"{run_id} .* 3 running"),
        (["logs", run_id, "talker-0"], r"\d"),
        (["stop", run_id], "stopped after"),
    ):
        shown = python("-m", "launchpad", *arguments, **elsewhere)
        assert re.search(said, shown.stdout), shown.stderr


@pytest.mark.leaks_by_nature  # Ray's connection to a launcher that is there for a minute yet
def test_a_launcher_may_take_its_time_to_begin_and_the_script_can_wait_and_hears_of_its_failure(
    ray_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = lp.Program("left")
    program.add_node(lp.PyNode(nodes.fail_at_once, "on purpose"), label="failing")

    with monkeypatch.context() as patch:
        patch.setattr(backend, "_ANSWER_S", 0.001)
        detached = lp.launch(program, "ray", detach=True)

    with pytest.raises(lp.ProgramFailed, match="on purpose") as failed:
        detached.wait(timeout_s=DEADLINE_S)
    assert failed.value.worker == "failing-0"
    assert detached.has_ended()
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
