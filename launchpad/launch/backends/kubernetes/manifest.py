"""Manifests: the objects of a run, as plain dicts. Pure, and the same for the same plan.

    Secret   <run>                 keys of the run, the user's project as a zip, what workers run; owns all
    Secret   <run>-001, …          what did not fit into the first; each pod sees only what is its own
    Service  <run>                 gives each pod the name <worker>.<run>
    Job      <run>-<worker>-1      an attempt: one pod, never restarted by the cluster

They are ones that every cluster has had since 1.19; none needs an operator.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from launchpad.launch.backends.kubernetes import names, parcels, readiness, shared
from launchpad.launch.backends.kubernetes.api import CONTAINER, Manifest
from launchpad.launch.backends.kubernetes.patch import patched
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.plan import WorkerPlan
from launchpad.resources import PACK, STRICT_PACK, STRICT_SPREAD

FIRST_PORT = 7070
GIVEN, WRITABLE, STATE = "/launchpad/given", "/launchpad/run", "/launchpad/state"
"""Folders of a pod: what it was given, where it may write, what a volume may keep for its next attempt."""

ORDERS = "launchpad/orders"
"""The annotation in which the launcher tells a pod something; a file in GIVEN."""

RUN, PROGRAM, GROUP, COLOCATION, WORKER, ATTEMPT = (
    f"launchpad/{name}" for name in ("run", "program", "group", "colocation", "worker", "attempt")
)
CODE = "code"
"""The content that is the user's project."""

ROLE = "launchpad/role"
RECORD = "launchpad/record"
"""The annotation of the root that says what there is to know of the run from outside."""

_OURS = {"app.kubernetes.io/managed-by": "launchpad"}

_MODULE = "launchpad.launch.backends.kubernetes.pod"
_USER = 1000
UNLIMITED_S = 7 * 86400.0
"""Of grace: a cluster wants a number."""

_TTL_S = 7 * 86400
"""Of what nobody has deleted, because its launcher was killed."""

_SPREAD_OVER = "kubernetes.io/hostname"
_PROBE_S = 10


@dataclass(frozen=True)
class Owner:
    """A Secret, with which all goes that belongs to it."""

    name: str
    uid: str


@dataclass(frozen=True)
class Run:
    """One run of a program on a cluster.

    Attributes:
      name: As `names.run_name` gives it.
      places: Where what its pods are given is, as `parcels.Stowed` says.
      owner: What that which is made now belongs to: its root, once that exists.
      files: What all of its pods get of the root.
    """

    program: str
    name: str
    settings: Settings
    places: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    owner: Owner | None = None
    grace_s: float = 10.0
    files: tuple[str, ...] = shared.FILES

    def metadata(self, name: str, **labels: str) -> dict[str, Any]:
        """An object's metadata."""
        ours = {**_OURS, RUN: self.name, PROGRAM: names.label(self.program)}
        meta: dict[str, Any] = {"name": name, "labels": {**ours, **labels}}
        if self.settings.namespace:
            meta["namespace"] = self.settings.namespace
        if self.owner:
            meta["ownerReferences"] = [
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "name": self.owner.name,
                    "uid": self.owner.uid,
                    "controller": False,
                    "blockOwnerDeletion": True,
                }
            ]
        return meta


def root(run: Run, files: Mapping[str, bytes], record: str = "", role: str = "root") -> Manifest:
    """The Secret that owns everything: the first of those with what pods are given.

    Args:
      record: By which the run is known elsewhere.
      role: By which it is found there.
    """
    secret = _secret(run, run.name, files, {ROLE: role})
    if record:
        secret["metadata"]["annotations"] = {RECORD: record}
    return secret


def others(run: Run, files: Sequence[Mapping[str, bytes]]) -> list[Manifest]:
    """The Secrets with what did not fit into the root."""
    return [_secret(run, _box(run, i), each) for i, each in enumerate(files, 1)]


def mark(run: Run) -> Manifest:
    """Says that a supervisor has launched: a cluster may start its pod a second time."""
    return _secret(run, f"{run.name}-begun", {})


def contents(code: bytes, workers: Iterable[WorkerPlan]) -> dict[str, bytes]:
    """What is to be stowed: the user's project, and what each worker runs."""
    return {CODE: code} | {content_of(w): pickle.dumps(w, protocol=5) for w in workers}


def service(run: Run) -> Manifest:
    """What gives pods their names: also to those that are not ready, since they find each other by them."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": run.metadata(run.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {RUN: run.name},
        },
    }


def state(run: Run, worker: WorkerPlan, attempt: int, parts: Sequence[bytes]) -> list[Manifest]:
    """The Secrets with what the attempt before has left for this one, a file in each."""
    secrets = parcels.file_names(_state_name(run, worker, attempt), len(parts))
    files = parcels.file_names("state", len(parts))
    return [
        _secret(run, secret, {file: part}, _labels(worker))
        for secret, file, part in zip(secrets, files, parts, strict=True)
    ]


def job(
    run: Run, worker: WorkerPlan, attempt: int, n_state_parts: int = 0, module: str = _MODULE
) -> Manifest:
    """One attempt of a worker.

    Args:
      n_state_parts: How many Secrets its state has.
      module: What its container runs.
    """
    states = parcels.file_names(_state_name(run, worker, attempt), n_state_parts)
    given = [*_given(run, worker), *({"name": name} for name in states)]
    labels = {**_labels(worker), ATTEMPT: str(attempt)}
    template = {
        "metadata": {
            "labels": run.metadata("", **labels)["labels"],
            "annotations": {ORDERS: ""},
        },
        "spec": _pod(run, worker, attempt, given, module),
    }
    whole = patched(template, run.settings.pod_patch)
    metadata = run.metadata(names.job_name(run.name, worker.name, attempt), **labels)
    metadata["labels"] |= whole["metadata"]["labels"]  # a queue of Kueue's looks for its own there
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"backoffLimit": 0, "ttlSecondsAfterFinished": _TTL_S, "template": whole},
    }


def grace_s(worker: WorkerPlan, usual_s: float) -> float:
    """How long a worker may take to stop; what is negative has no limit."""
    own_s = worker.restart.stop_grace_s
    seconds = usual_s if own_s is None else own_s
    return UNLIMITED_S if seconds < 0 else min(seconds, UNLIMITED_S)


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


def _pod(
    run: Run, worker: WorkerPlan, attempt: int, given: Sequence[dict[str, Any]], module: str
) -> dict[str, Any]:
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
        "readinessProbe": {"tcpSocket": {"port": readiness.PORT}, "periodSeconds": _PROBE_S},
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


def _given(run: Run, worker: WorkerPlan) -> list[dict[str, Any]]:
    """What a pod is given of the boxes: what all are, and what its worker runs."""
    items: dict[int, list[dict[str, str]]] = {0: [{"key": f, "path": f} for f in run.files]}
    for content, path in ((CODE, CODE), (content_of(worker), "worker")):
        for i, (box, file) in enumerate(run.places.get(content, ())):
            items.setdefault(box, []).append({"key": file, "path": parcels.file_name(path, i)})
    return [{"name": _box(run, box), "items": found} for box, found in items.items()]


def _volumes(given: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    annotation = {"path": "orders", "fieldRef": {"fieldPath": f"metadata.annotations['{ORDERS}']"}}
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
        return {"podAffinity": _insisting(_beside(run, COLOCATION, worker.colocation))}
    placement = worker.resources.placement
    term = _beside(run, GROUP, worker.group)
    kind = "podAffinity" if placement in (PACK, STRICT_PACK) else "podAntiAffinity"
    if placement in (STRICT_PACK, STRICT_SPREAD):
        return {kind: _insisting(term)}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def _beside(run: Run, label: str, value: str) -> dict[str, Any]:
    """The nodes of those pods."""
    return {
        "labelSelector": {"matchLabels": {RUN: run.name, label: names.label(value)}},
        "topologyKey": _SPREAD_OVER,
    }


def _insisting(term: dict[str, Any]) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def _labels(worker: WorkerPlan) -> dict[str, str]:
    own = {GROUP: names.label(worker.group), WORKER: names.label(worker.name)}
    return own | ({COLOCATION: names.label(worker.colocation)} if worker.colocation else {})


def content_of(worker: WorkerPlan) -> str:
    """What is called so is what it runs."""
    return f"worker.{names.host_name(worker.name)}"


def _box(run: Run, number: int) -> str:
    return parcels.file_name(run.name, number) if number else run.name


def _state_name(run: Run, worker: WorkerPlan, attempt: int) -> str:
    return f"{names.job_name(run.name, worker.name, attempt)}-state"


def _secret(
    run: Run,
    name: str,
    files: Mapping[str, bytes],
    labels: Mapping[str, str] = MappingProxyType({}),
) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": run.metadata(name, **labels),
        "immutable": True,
        "type": "Opaque",
        "data": {file: base64.b64encode(content).decode() for file, content in files.items()},
    }
