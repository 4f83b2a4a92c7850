"""What the launcher concludes from Ray's errors about the worker actor of a worker."""

from __future__ import annotations

import pytest

from launchpad.errors import LaunchError
from launchpad.launch.backends.ray.actor_handle import ActorHandle
from launchpad.launch.backends.remote.worker_host import HostReady

ray = pytest.importorskip("ray")

OF_ITS_NODE = "The actor is dead because its node has died. Node Id: 5e"
OF_ITSELF = "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"


def actor_died(why: str) -> BaseException:
    error = ray.exceptions.ActorDiedError()
    error.error_msg = why
    error.args = (why,)
    return error


def handle() -> ActorHandle:
    return ActorHandle("worker-0", 1, ready=HostReady("5e", "10.0.0.1"))


@pytest.mark.parametrize(
    "error",
    [
        actor_died(OF_ITSELF),
        ray.exceptions.RayTaskError("open", "Traceback …", LaunchError("no such folder")),
    ],
    ids=["its process has ended", "it has answered"],
)
def test_an_actor_is_dead_if_its_process_was_seen_to_end_or_it_has_answered(
    error: BaseException,
) -> None:
    assert handle().is_surely_dead(error)
    assert "has died" in handle().describe_death(error)


@pytest.mark.parametrize(
    "error",
    [
        actor_died(OF_ITS_NODE),
        ray.exceptions.ActorUnavailableError("The actor is unavailable", b"0" * 16),
        ray.exceptions.NodeDiedError("the node has died"),
        ray.exceptions.RaySystemError("a fetch has failed"),
        LaunchError("it has not answered for 12 s"),
    ],
    ids=["its node has died", "unavailable", "node died", "of the system", "silent"],
)
def test_an_actor_may_go_on_if_only_its_node_is_out_of_reach(error: BaseException) -> None:
    assert not handle().is_surely_dead(error)
    assert "was lost" in handle().describe_death(error)


def test_a_lease_is_not_renewed_without_ray_because_that_would_start_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    with pytest.raises(LaunchError, match=r"disconnected, by ray\.shutdown"):
        handle().renew()
