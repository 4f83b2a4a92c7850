"""The objects of a run, as plain dicts. Pure: the same plan gives the same objects.

    ConfigMap <run>                the root: the record of the run; owns all
    Secret   <run>                 keys of the run, the user's project as a zip, what workers run
    Secret   <run>-001, …          what did not fit into the first; each pod sees only its part
    Service  <run>                 gives each pod the name <worker>.<run>
    Job      <run>-<worker>-1      an attempt: one pod, never restarted by the cluster

The root is no Secret, because a user who may read or list Secrets may read those of others, too. A launch
only creates Secrets, and the cluster deletes them with the root.

Every cluster from 1.19 on has these kinds. None of them needs an operator.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from launchpad.launch.backends.kubernetes.api.client import Manifest
from launchpad.launch.backends.kubernetes.manifests import names
from launchpad.launch.backends.kubernetes.manifests.names import CODE, Run
from launchpad.launch.backends.kubernetes.manifests.pod_spec import patched, pod_spec
from launchpad.launch.backends.kubernetes.pod_inputs import pod_input
from launchpad.launch.plan import WorkerPlan

_MODULE = "launchpad.launch.backends.kubernetes.pod"
_TTL_S = 7 * 86400
"""Seconds after which the cluster deletes an ended Job, if its launcher was killed and can't delete it."""


def root(run: Run, record: str = "", role: str = "root") -> Manifest:
    """Return the ConfigMap that owns everything.

    Other scripts find it by the label `role`, and read about the run in `record`.
    """
    return config_map(run, run.name, {names.RECORD: record} if record else {}, **{names.ROLE: role})


def config_map(run: Run, name: str, texts: Mapping[str, str], **more: str) -> Manifest:
    """Return a ConfigMap of the run with these texts; `more` are further labels."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": run.metadata(name, **more),
        "data": dict(texts),
    }


def inputs(run: Run, files: Sequence[Mapping[str, bytes]]) -> list[Manifest]:
    """Return the Secrets with the input of all pods."""
    return [
        secret(run, _input_name(run, number), secret_files)
        for number, secret_files in enumerate(files)
    ]


def _input_name(run: Run, number: int) -> str:
    return pod_input.file_name(run.name, number) if number else run.name


def secret(run: Run, name: str, files: Mapping[str, bytes], **more: str) -> Manifest:
    """Return a Secret of the run with these files; `more` are further labels."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": run.metadata(name, **more),
        "immutable": True,
        "type": "Opaque",
        "data": {file: base64.b64encode(content).decode() for file, content in files.items()},
    }


def contents(code: bytes, workers: Iterable[WorkerPlan]) -> dict[str, bytes]:
    """Return the contents to pack for pods: the user's project, and the pickled plan of each worker."""
    return {CODE: code} | {content_of(w): pickle.dumps(w, protocol=5) for w in workers}


def service(run: Run) -> Manifest:
    """Return the Service that gives pods their DNS names, even before they are ready: pods need the names."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": run.metadata(run.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.RUN: run.name},
        },
    }


def state(run: Run, worker: WorkerPlan, attempt: int, parts: Sequence[bytes]) -> list[Manifest]:
    """Return the Secrets, with a file each, with the state that the previous attempt left for this one."""
    name = names.job_name(run.name, worker.name, attempt)
    return [
        secret(
            run,
            pod_input.file_name(f"{name}-state", i),
            {pod_input.file_name("state", i): part},
            **names.labels_of(worker),
        )
        for i, part in enumerate(parts)
    ]


def job(
    run: Run, worker: WorkerPlan, attempt: int, n_state_parts: int = 0, module: str = _MODULE
) -> Manifest:
    """Return the Job of one attempt. Its container runs `module`; its state is in `n_state_parts` Secrets."""
    items: dict[int, list[dict[str, str]]] = {0: [{"key": f, "path": f} for f in run.files]}
    for content, path in ((CODE, CODE), (content_of(worker), "worker")):
        for i, (number, file) in enumerate(run.places.get(content, ())):
            item = {"key": file, "path": pod_input.file_name(path, i)}
            items.setdefault(number, []).append(item)
    secrets: list[dict[str, Any]] = [
        {"name": _input_name(run, number), "items": secret_items}
        for number, secret_items in items.items()
    ]
    name = names.job_name(run.name, worker.name, attempt)
    secrets += [{"name": pod_input.file_name(f"{name}-state", i)} for i in range(n_state_parts)]
    ours = {**names.labels_of(worker), names.ATTEMPT: str(attempt)}
    if run.mounts_state:
        ours[names.STATE_LOCK] = names.state_lock(run.state, run.settings.state_volume)
    template = {
        "metadata": {
            "labels": run.metadata("", **ours)["labels"],
            "annotations": {names.COMMANDS: ""},
        },
        "spec": pod_spec(run, worker, attempt, secrets, module),
    }
    patched_template = patched(template, run.settings.pod_patch)
    group_patch = run.settings.group_patches.get(worker.group, {})
    patched_template = patched(patched_template, group_patch)
    metadata = run.metadata(name, **ours)
    # Kueue looks for its labels on the Job.
    metadata["labels"] |= patched_template["metadata"]["labels"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": _TTL_S,
            "template": patched_template,
        },
    }


def content_of(worker: WorkerPlan) -> str:
    """Return the name of the content with a worker's plan."""
    return f"worker.{names.host_name(worker.name)}"
