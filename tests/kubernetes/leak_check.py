"""What is left of runs on a cluster."""

from __future__ import annotations

from launchpad.launch.backends.kubernetes import termination
from launchpad.launch.backends.kubernetes.api.client import Cluster

KINDS = ("Secret", "Service", "Job", "Pod", "ServiceAccount", "Role", "RoleBinding")


def what_is_left(api: Cluster) -> list[str]:
    """The objects with a run's label, in the namespace of these tests."""
    return [
        f"{kind} {each['metadata']['name']}"
        for kind in KINDS
        for each in api.list(kind, "launchpad/run")[0]
    ]


def end_all(api: Cluster) -> None:
    """Of a test that has failed, so that the next one finds nothing."""
    for root in api.list("Secret", "launchpad/role=root")[0]:
        name = root["metadata"]["name"]
        pods = api.list("Pod", f"launchpad/run={name}")[0]
        termination.remove(api, name, {pod["metadata"]["name"] for pod in pods})
