"""The spec of a worker's pod, and the patch with which a user changes it. Pure.

A patch is merged:

    dict into dict     key by key; None removes a key
    list into list     dicts with names are merged by name, or added; any other list is replaced
    anything else      replaced
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from launchpad.launch.backends.kubernetes.api.client import CONTAINER
from launchpad.launch.backends.kubernetes.manifests import names
from launchpad.launch.backends.kubernetes.manifests.names import Run
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.plan import WorkerPlan
from launchpad.launch.planning.interpreter import HASH_SEED
from launchpad.resources import PACK, STRICT_PACK, STRICT_SPREAD, Resources

_USER = 1000
_SPREAD_OVER = "kubernetes.io/hostname"
_PROBE_S = 10
_STATES = "states"

_DISK = "ephemeral-storage"
_DISK_REQUEST = "64Mi"
"""The disk that a worker requests by default: enough for its code, its log and the state that is copied.

When a node's disk is full, its kubelet first evicts pods that use more than they request.
"""

_FOLDER_LIMIT = "10Gi"
"""The limit of an `emptyDir` if the worker's resources have no limit from which it follows."""


def pod_spec(
    run: Run, worker: WorkerPlan, attempt: int, mounted: Sequence[dict[str, Any]], module: str
) -> dict[str, Any]:
    """Return the spec of one attempt's pod, which mounts the Secrets `mounted`, and runs `module`."""
    resources = worker.resources
    limits = _limits(run, worker)
    disk_limit = limits.get(_DISK, _FOLDER_LIMIT)
    # Files in /dev/shm count as memory of the container, so they never get more than the container.
    memory_limit = limits.get("memory", _FOLDER_LIMIT)
    annotation = {
        "path": "orders",
        "fieldRef": {"fieldPath": f"metadata.annotations['{names.COMMANDS}']"},
    }
    sources: list[dict[str, Any]] = [{"secret": secret} for secret in mounted]
    sources.append({"downwardAPI": {"items": [annotation]}})
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "hostname": names.host_name(worker.name),
        "subdomain": run.name,
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        # The first process of a namespace would not receive SIGTERM while it starts.
        "shareProcessNamespace": True,
        "terminationGracePeriodSeconds": int(names.grace_s(worker, run.grace_s)) + 5,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(run, worker, attempt, module, limits)],
        "volumes": [
            {"name": "given", "projected": {"defaultMode": 0o400, "sources": sources}},
            *(
                {"name": name, "emptyDir": {"sizeLimit": disk_limit}}
                for name in ("run", "state", "tmp")
            ),
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": memory_limit}},
        ],
    }
    if run.mounts_state:
        spec["volumes"].append({"name": _STATES, **run.settings.state_volume})
        mount = {"name": _STATES, "mountPath": names.STATE_VOLUME}
        spec["containers"][0]["volumeMounts"].append(mount)
    if resources.labels:
        spec["nodeSelector"] = dict(resources.labels)
    if worker.colocation or resources.placement:
        spec["affinity"] = _affinity(run, worker)
    return spec


def worker_container(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the worker's container of a pod. A patch may have added other containers."""
    container: dict[str, Any] = next(c for c in spec["containers"] if c["name"] == CONTAINER)
    return container


def defaults_for(resources: Resources, settings: Settings) -> dict[str, str]:
    """Return the default resources of a worker: those that its own leave open."""
    own = {
        "cpu": resources.cpus,
        "memory": resources.memory,
        settings.gpu_resource: resources.gpus or None,
    }
    defaults = settings.default_resources
    return {name: amount for name, amount in defaults.items() if own.get(name) is None}


def _limits(run: Run, worker: WorkerPlan) -> dict[str, str]:
    """Return the limits of a worker's container: what the worker asks for, and defaults for the rest."""
    resources = worker.resources
    limits = defaults_for(resources, run.settings)
    if resources.cpus is not None:
        limits["cpu"] = f"{round(resources.cpus * 1000)}m"
    if resources.memory_bytes is not None:
        limits["memory"] = str(resources.memory_bytes)
    if resources.gpus:
        limits[run.settings.gpu_resource] = str(int(resources.gpus))
    return limits


def _container(
    run: Run, worker: WorkerPlan, attempt: int, module: str, limits: Mapping[str, str]
) -> dict[str, Any]:
    # Limits are requests, too, so a worker gets what it asks for, no less and no more.
    requests = {_DISK: _DISK_REQUEST, **limits}
    python = worker.process.python
    interpreter = [python] if python else ["python3", *run.python_flags]
    return {
        "name": CONTAINER,
        "image": run.settings.image,
        "command": [*interpreter, "-m", module, str(attempt)],
        **({"env": [{"name": HASH_SEED, "value": run.hash_seed}]} if run.hash_seed else {}),
        "resources": {**({"limits": dict(limits)} if limits else {}), "requests": requests},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "given", "mountPath": names.MOUNTED, "readOnly": True},
            {"name": "run", "mountPath": names.WRITABLE},
            {"name": "state", "mountPath": names.STATE},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
        "readinessProbe": {"tcpSocket": {"port": names.READY_PORT}, "periodSeconds": _PROBE_S},
    }


def _affinity(run: Run, worker: WorkerPlan) -> dict[str, Any]:
    """Return the affinity that puts a pod near the others of its group, or away from them.

    A strict placement is a requirement, any other is a preference. The processes of a colocation are pods on
    one node, not containers of one pod, because each must be able to restart by itself.
    """
    placement = worker.resources.placement
    label = names.GROUP
    value = worker.group
    if worker.colocation:
        label = names.COLOCATION
        value = worker.colocation
        placement = STRICT_PACK
    term = {
        "labelSelector": {"matchLabels": {names.RUN: run.name, label: names.label(value)}},
        "topologyKey": _SPREAD_OVER,
    }
    kind = "podAffinity" if placement in (PACK, STRICT_PACK) else "podAntiAffinity"
    if placement in (STRICT_PACK, STRICT_SPREAD):
        return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


ALL = "*"
"""The name that stands for all members in a list of dicts with names."""


def patched(value: Any, patch: Any) -> Any:
    """Return the value with the patch merged in. Neither is changed.

    Example:
        patched(pod, {"spec": {"containers": [{"name": "*", "volumeMounts": [{"name": "data", …}]}]}})
    """
    if isinstance(value, Mapping) and isinstance(patch, Mapping):
        merged = {
            key: patched(old, patch[key]) if key in patch else old for key, old in value.items()
        }
        merged |= {key: new for key, new in patch.items() if key not in value}
        return {key: new for key, new in merged.items() if new is not None}
    if _have_names(value) and _have_names(patch):
        by_name = {member["name"]: member for member in value}
        for new in patch:
            for name in list(by_name) if new["name"] == ALL else [new["name"]]:
                by_name[name] = patched(by_name.get(name, {}), {**new, "name": name})
        return list(by_name.values())
    return patch


def _have_names(value: object) -> bool:
    if not isinstance(value, (list, tuple)) or not value:
        return False
    return all(isinstance(member, Mapping) and "name" in member for member in value)
