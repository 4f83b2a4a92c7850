"""Pod spec: what the pod of a worker is to be. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from launchpad.launch.backends.kubernetes.cluster.cluster import CONTAINER, Manifest
from launchpad.launch.backends.kubernetes.objects import labels, names
from launchpad.launch.backends.kubernetes.objects.grace import grace_s
from launchpad.launch.backends.kubernetes.objects.layout import GIVEN, READY_PORT, STATE, WRITABLE
from launchpad.launch.backends.kubernetes.objects.run import Run
from launchpad.launch.plan import WorkerPlan
from launchpad.resources import PACK, STRICT_PACK, STRICT_SPREAD

_USER = 1000
_SPREAD_OVER = "kubernetes.io/hostname"
_PROBE_S = 10


def pod_spec(
    run: Run, worker: WorkerPlan, attempt: int, given: Sequence[dict[str, Any]], module: str
) -> dict[str, Any]:
    """Of one attempt.

    Args:
      given: The Secrets with what it is given.
      module: What its container runs.
    """
    asked = worker.resources
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "hostname": names.host_name(worker.name),
        "subdomain": run.name,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "shareProcessNamespace": True,  # the first process of a namespace does not hear SIGTERM as it starts
        "terminationGracePeriodSeconds": int(grace_s(worker, run.grace_s)) + 5,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(run, worker, attempt, module)],
        "volumes": _volumes(given),
    }
    if asked.labels:
        spec["nodeSelector"] = dict(asked.labels)
    if worker.colocation or asked.placement:
        spec["affinity"] = _affinity(run, worker)
    return spec


def carries_state(job: Manifest) -> bool:
    """Whether its state directory goes with the pod: no patch has put a volume there."""
    spec = job["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = worker_container(spec)["volumeMounts"]
    names_there = [mount["name"] for mount in mounts if mount["mountPath"] == STATE]
    return all("emptyDir" in volumes.get(name, ()) for name in names_there)


def worker_container(spec: Mapping[str, Any]) -> dict[str, Any]:
    """That of a pod's which is ours; a patch may have added others."""
    found: dict[str, Any] = next(c for c in spec["containers"] if c["name"] == CONTAINER)
    return found


def _container(run: Run, worker: WorkerPlan, attempt: int, module: str) -> dict[str, Any]:
    python = worker.python or "python3"
    return {
        "name": CONTAINER,
        "image": run.settings.image,
        "command": [python, "-m", module, str(attempt)],
        "resources": _resources(run, worker),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "given", "mountPath": GIVEN, "readOnly": True},
            {"name": "run", "mountPath": WRITABLE},
            {"name": "state", "mountPath": STATE},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
        "readinessProbe": {"tcpSocket": {"port": READY_PORT}, "periodSeconds": _PROBE_S},
    }


def _resources(run: Run, worker: WorkerPlan) -> dict[str, Any]:
    """Limits are requests: what was asked for is what it gets, no less and no more."""
    asked = worker.resources
    limits: dict[str, str] = {}
    if asked.cpus is not None:
        limits["cpu"] = f"{round(asked.cpus * 1000)}m"
    if asked.memory_bytes is not None:
        limits["memory"] = str(asked.memory_bytes)
    if asked.gpus:
        limits[run.settings.gpu_resource] = str(int(asked.gpus))
    return {"limits": limits, "requests": dict(limits)} if limits else {}


def _volumes(given: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    annotation = {
        "path": "orders",
        "fieldRef": {"fieldPath": f"metadata.annotations['{labels.ORDERS}']"},
    }
    sources: list[dict[str, Any]] = [{"secret": secret} for secret in given]
    sources.append({"downwardAPI": {"items": [annotation]}})
    return [
        {"name": "given", "projected": {"defaultMode": 0o400, "sources": sources}},
        {"name": "run", "emptyDir": {}},
        {"name": "state", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]


def _affinity(run: Run, worker: WorkerPlan) -> dict[str, Any]:
    """Beside, or away from, the others of its group: if possible, or else not at all.

    Processes of one colocation are pods of one node: each is started again by itself, as no container of a
    pod can be.
    """
    if worker.colocation:
        return {"podAffinity": _insisting(_beside(run, labels.COLOCATION, worker.colocation))}
    placement = worker.resources.placement
    term = _beside(run, labels.GROUP, worker.group)
    kind = "podAffinity" if placement in (PACK, STRICT_PACK) else "podAntiAffinity"
    if placement in (STRICT_PACK, STRICT_SPREAD):
        return {kind: _insisting(term)}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def _beside(run: Run, label: str, value: str) -> dict[str, Any]:
    """The nodes of those pods."""
    return {
        "labelSelector": {"matchLabels": {labels.RUN: run.name, label: names.label(value)}},
        "topologyKey": _SPREAD_OVER,
    }


def _insisting(term: dict[str, Any]) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
