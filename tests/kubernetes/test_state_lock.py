"""Two launches do not save into one folder of a volume."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import pytest

import launchpad as lp
from launchpad.launch.backends.kubernetes import create_run
from launchpad.launch.backends.kubernetes.backend import TestKubernetes
from launchpad.launch.backends.kubernetes.create_run import Submitter
from launchpad.launch.backends.kubernetes.detached import launcher_manifests
from launchpad.launch.backends.kubernetes.detached.launcher_manifests import LauncherSpec
from launchpad.launch.backends.kubernetes.manifests import manifest, names
from launchpad.launch.backends.kubernetes.manifests.names import Run
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.backends.launcher_info import RunSecrets
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.planning import planner
from launchpad.launch.rundir.directory import RunDirectory
from tests import nodes
from tests.kubernetes.fake_cluster import FakeCluster

RUNS = {"persistentVolumeClaim": {"claimName": "runs"}}
LOCK = ("ConfigMap", names.state_lock("exp1", RUNS))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create_run, "_LOCK_PAUSE_S", 0.01)


def planned(volume: Mapping[str, Any] = RUNS) -> tuple[LaunchPlan, Settings]:
    program = lp.Program("saves")
    program.add_node(lp.PyClassNode(nodes.Loop), label="loop")
    options: dict[str, Any] = {"image": "image", "state_volume": volume, "send_code": False}
    backend = TestKubernetes(**options)
    return planner.plan(program, backend, "test_kubernetes", state="exp1"), Settings(**options)


def make(cluster: FakeCluster, volume: Mapping[str, Any] = RUNS) -> Run:
    """Creates what a run of its own has before its pods."""
    plan, settings = planned(volume)
    keys = RunSecrets.of(plan.program, "kubernetes")
    submitter = Submitter(
        Submitter.here(settings).origin, b"", 1.0, run=f"saves-{secrets.token_hex(4)}"
    )
    directory = RunDirectory.create(plan.program)
    try:
        return create_run.make(cluster, plan, directory, settings, keys, submitter)
    finally:
        directory.remove()


def make_stale_lock(cluster: FakeCluster) -> None:
    """One of a run whose root is gone, and which the cluster has not deleted yet."""
    del cluster.objects["ConfigMap", make(cluster).name]


def test_a_folder_of_one_volume_is_one_runs_until_that_is_deleted(cluster: FakeCluster) -> None:
    first = make(cluster)
    make(cluster, {"persistentVolumeClaim": {"claimName": "other"}})
    make(cluster, {"hostPath": {"path": "/runs"}})

    with pytest.raises(lp.LaunchError, match=f"state='exp1' is in use by run {first.name} in"):
        make(cluster, {"persistentVolumeClaim": {"claimName": "runs", "readOnly": False}})
    cluster.delete("ConfigMap", first.name)

    make(cluster)


def test_a_stale_lock_goes_to_one(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    make_stale_lock(cluster)
    got: list[Run] = []
    delete = cluster.delete

    def delete_late(kind: str, name: str, **options: Any) -> None:
        if (kind, name) == LOCK and not got:  # between our look and our delete
            monkeypatch.setattr(cluster, "delete", delete)
            got.append(make(cluster))
        delete(kind, name, **options)

    monkeypatch.setattr(cluster, "delete", delete_late)

    with pytest.raises(lp.LaunchError, match="is in use by run ") as refused:
        make(cluster)
    assert got[0].name in str(refused.value)
    assert cluster.objects[LOCK]["metadata"]["ownerReferences"][0]["name"] == got[0].name


def test_a_stale_lock_that_cannot_be_deleted_is_refused_with_why(cluster: FakeCluster) -> None:
    make_stale_lock(cluster)
    cluster.refused = {("delete", "ConfigMap")}

    with pytest.raises(lp.LaunchError, match="in 5 tries: you cannot delete configmaps") as refused:
        make(cluster)
    assert f"`kubectl delete configmap {LOCK[1]} -n mine`" in str(refused.value)


def test_a_folder_is_not_free_while_a_pod_of_a_deleted_run_stops(cluster: FakeCluster) -> None:
    first = make(cluster)
    cluster.create(manifest.job(first, planned()[0].workers[0], 1))
    pod = cluster.pod("loop-0")
    cluster.run(pod)
    cluster.delete("ConfigMap", first.name)
    assert "deletionTimestamp" in cluster.objects["Pod", pod]["metadata"]

    with pytest.raises(lp.LaunchError, match=f"is in use by pod {pod} of run {first.name}"):
        make(cluster)
    assert LOCK not in cluster.objects
    cluster.end(pod)

    make(cluster)


def test_a_supervisor_in_the_cluster_may_read_and_delete_the_lock(cluster: FakeCluster) -> None:
    plan, settings = planned()
    submitter = Submitter(Submitter.here(settings).origin, b"", 1.0, run="saves-1")

    launcher_manifests.create(cluster, LauncherSpec(plan, settings, submitter))

    role = next(each for (kind, _), each in cluster.objects.items() if kind == "Role")
    (named,) = (rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule)
    assert LOCK[1] in named
