"""What the launcher says to the actors of its workers: in which order, and whether it is heard."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

import pytest

import launchpad as lp
from launchpad.courier import OutcomeUnknown
from launchpad.launch.backends.launch_origin import versions
from launchpad.launch.backends.ray import placement_group, workers
from launchpad.launch.backends.ray.worker_actor import WorkerActor
from tests import nodes
from tests.ray import clusters

pytest.importorskip("ray")

DEADLINE_S = 60.0


class Knows:
    """Tells what it was told of others."""

    def gone_reason(self, worker: str) -> str:
        """What it knows against that worker, as soon as it knows anything."""
        deadline = time.monotonic() + 5.0
        while not (why := lp.current().gone_reason(worker)) and time.monotonic() < deadline:
            time.sleep(0.01)
        return why


class KillsHost(nodes.Counter):
    """Can end the parent of its process, which is that of nobody else."""

    def kill_host(self) -> int:
        """By SIGKILL."""
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(DEADLINE_S)
        return 0


class Recorder:
    """In the place of an actor's processes."""

    def __init__(self) -> None:
        self.received: list[Any] = []

    def place(self, places: dict[str, str]) -> None:
        """Notes it."""
        self.received.append(places)

    def announce_gone(self, worker: str, why: str) -> None:
        """Notes it."""
        self.received.append(worker)


def one(label: str, node: Any, **resources: Any) -> lp.Program:
    """A program of one worker."""
    program = lp.Program("commands")
    with program.group(label, resources=lp.Resources(**resources)):
        program.add_node(node)
    return program


def test_commands_are_executed_as_they_were_sent_however_ray_mixes_them() -> None:
    actor, recorder = WorkerActor(versions()), Recorder()
    actor._workers = recorder  # type: ignore[assignment]

    async def arrive() -> None:
        await actor.execute_in_order(2, "place", {"server-0/courier": "there"})
        await actor.execute_in_order(1, "place", {"server-0/courier": ""})
        await actor.execute_in_order(0, "announce_gone", "server-0", "it has ended")

    asyncio.run(arrive())

    assert recorder.received == [
        "server-0",
        {"server-0/courier": ""},
        {"server-0/courier": "there"},
    ]


@pytest.mark.leaks_by_nature  # Ray keeps the connection by which it first made an actor
def test_who_is_started_late_learns_who_was_gone_before(ray_cluster: clusters.Cluster) -> None:
    with lp.launch(one("late", lp.CourierNode(Knows)), "test_ray") as running:
        running._runner.workers.announce_gone("other-0", "it has ended")  # no actor is up so soon

        why = running.client("late").gone_reason("other-0")

    assert why == "it has ended"


def test_a_worker_whose_host_was_killed_starts_again_at_another(
    ray_cluster: clusters.Cluster,
) -> None:
    program = one("server", lp.CourierNode(KillsHost))

    with lp.launch(program, "test_ray", restart=lp.RestartPolicy(max_restarts=1)) as running:
        client = running.client("server")
        client.add(1)
        with pytest.raises(OutcomeUnknown):
            client.kill_host()
        counted = client.add(1)

        assert (counted, running.status()[0].attempt) == (1, 2)


def test_a_worker_for_which_ray_makes_no_actor_is_not_waited_for(
    ray_cluster: clusters.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise RuntimeError("no actors today")

    monkeypatch.setattr(workers, "versions", refuse)  # which an actor is made with
    running = lp.launch(one("server", lp.CourierNode(nodes.Counter)), "test_ray")

    with pytest.raises(lp.ProgramFailed, match="no actors today"):
        running.wait(timeout_s=DEADLINE_S)


@pytest.mark.leaks_by_nature  # Ray keeps the connection by which it first reserved room
def test_room_is_waited_for_no_longer_at_a_restart(
    ray_cluster: clusters.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement_group, "PENDING_S", 0.5)
    once_more = lp.RestartPolicy(max_restarts=1, backoff=0.1)
    with lp.launch(one("first", lp.CourierNode(nodes.Counter), cpus=4), "test_ray") as first:
        first.client("first").add(1)

        second = lp.launch(
            one("late", lp.CourierNode(nodes.Counter), cpus=4), "test_ray", restart=once_more
        )
        with pytest.raises(lp.ProgramFailed, match="no room on the Ray cluster"):
            second.wait(timeout_s=DEADLINE_S)
