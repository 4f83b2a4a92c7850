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
from types import MappingProxyType
from typing import Any

from launchpad.launch.backends.kubernetes.cluster.cluster import Manifest
from launchpad.launch.backends.kubernetes.objects import labels, names
from launchpad.launch.backends.kubernetes.objects.layout import CODE
from launchpad.launch.backends.kubernetes.objects.patch import patched
from launchpad.launch.backends.kubernetes.objects.pod_spec import pod_spec
from launchpad.launch.backends.kubernetes.objects.run import Run
from launchpad.launch.backends.kubernetes.post import parcels
from launchpad.launch.plan import WorkerPlan

_MODULE = "launchpad.launch.backends.kubernetes.pod"
_TTL_S = 7 * 86400
"""Of what nobody has deleted, because its launcher was killed."""


def root(run: Run, files: Mapping[str, bytes], record: str = "", role: str = "root") -> Manifest:
    """The Secret that owns everything: the first of those with what pods are given.

    Args:
      record: By which the run is known elsewhere.
      role: By which it is found there.
    """
    secret = _secret(run, run.name, files, {labels.ROLE: role})
    if record:
        secret["metadata"]["annotations"] = {labels.RECORD: record}
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
            "selector": {labels.RUN: run.name},
        },
    }


def state(run: Run, worker: WorkerPlan, attempt: int, parts: Sequence[bytes]) -> list[Manifest]:
    """The Secrets with what the attempt before has left for this one, a file in each."""
    secrets = parcels.file_names(_state_name(run, worker, attempt), len(parts))
    files = parcels.file_names("state", len(parts))
    return [
        _secret(run, secret, {file: part}, labels.of_worker(worker))
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
    ours = {**labels.of_worker(worker), labels.ATTEMPT: str(attempt)}
    template = {
        "metadata": {
            "labels": run.metadata("", **ours)["labels"],
            "annotations": {labels.ORDERS: ""},
        },
        "spec": pod_spec(run, worker, attempt, given, module),
    }
    whole = patched(template, run.settings.pod_patch)
    metadata = run.metadata(names.job_name(run.name, worker.name, attempt), **ours)
    metadata["labels"] |= whole["metadata"]["labels"]  # a queue of Kueue's looks for its own there
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"backoffLimit": 0, "ttlSecondsAfterFinished": _TTL_S, "template": whole},
    }


def _given(run: Run, worker: WorkerPlan) -> list[dict[str, Any]]:
    """What a pod is given of the boxes: what all are, and what its worker runs."""
    items: dict[int, list[dict[str, str]]] = {0: [{"key": f, "path": f} for f in run.files]}
    for content, path in ((CODE, CODE), (content_of(worker), "worker")):
        for i, (box, file) in enumerate(run.places.get(content, ())):
            items.setdefault(box, []).append({"key": file, "path": parcels.file_name(path, i)})
    return [{"name": _box(run, box), "items": found} for box, found in items.items()]


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
    more: Mapping[str, str] = MappingProxyType({}),
) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": run.metadata(name, **more),
        "immutable": True,
        "type": "Opaque",
        "data": {file: base64.b64encode(content).decode() for file, content in files.items()},
    }
