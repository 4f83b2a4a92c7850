"""Supervisor: the objects of a launcher that stays in the cluster when its script has left. Pure.

    Job      <run>-supervisor       one pod; when it has long ended, the cluster deletes it, and so the rest
    └── Secret <run>-supervisor     what it is to launch; owns what follows, and the run's own root
        ├── Secret          <run>-supervisor-001 …      what of that does not fit into one MiB
        ├── Secret          <run>-supervisor-begun      that it has launched
        ├── ServiceAccount  <run>-supervisor            the only pod of a run that has one
        ├── Role, RoleBinding                           what it may do
        └── Secret <run> …                              the run, as it is without a supervisor

The Secret is made first and given to the Job afterwards: a pod needs both of them, and the account.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from launchpad.launch.backends.kubernetes.cluster.cluster import Manifest
from launchpad.launch.backends.kubernetes.objects import manifest
from launchpad.launch.backends.kubernetes.objects.grace import grace_s
from launchpad.launch.backends.kubernetes.objects.pod_spec import worker_container
from launchpad.launch.backends.kubernetes.objects.run import Owner, Run
from launchpad.launch.backends.kubernetes.post import parcels, shared
from launchpad.launch.backends.kubernetes.sender import Sender
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.plan import LaunchPlan, WorkerPlan

NAME = "supervisor"
ERRAND = "worker"
"""The content that says what is to be launched; for pods of a run it is what they run."""

_POD = WorkerPlan(NAME, NAME, 0, 1, "supervisor", 0)
"""Itself, as the worker of a run of its own."""

_RBAC = "rbac.authorization.k8s.io"
_MODULE = "launchpad.launch.backends.kubernetes.left.steward"
_REQUESTS = {"cpu": "100m", "memory": "256Mi"}
"""So that it is not the first to be evicted."""

_GRACE_S = 60.0
"""Beside what its workers may take to stop."""


@dataclass(frozen=True)
class Errand:
    """What a supervisor is given.

    Attributes:
      run: The name that the run is to have.
    """

    plan: LaunchPlan
    settings: Settings
    sender: Sender
    run: str


def name(run: str) -> str:
    """What all objects of a run's supervisor are called, or begin with."""
    return f"{run}-{NAME}"


def files(errand: Errand) -> parcels.Stowed:
    """What its pod is given."""
    versions = {shared.VERSIONS: shared.versions_file()}
    return parcels.stowed(versions, {manifest.content_of(_POD): pickle.dumps(errand, protocol=5)})


def run_of(errand: Errand, places: Mapping[str, tuple[tuple[int, str], ...]]) -> Run:
    """The supervisor as a run of its own, of one pod."""
    usual_s = errand.sender.notice_s
    longest_s = max(grace_s(worker, usual_s) for worker in errand.plan.workers)
    return Run(
        errand.plan.program,
        name(errand.run),
        errand.settings,
        places,
        grace_s=longest_s + _GRACE_S,
        files=(shared.VERSIONS,),
    )


def account(run: Run) -> Manifest:
    """Who it is."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": run.metadata(run.name),
        "automountServiceAccountToken": False,
    }


def role(run: Run, program_run: str) -> Manifest:
    """What it may do: what a launch takes; of Secrets it can read and delete those of its run."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": run.metadata(run.name),
        "rules": [
            _rule("", "secrets", "create"),
            {**_rule("", "secrets", "get", "delete"), "resourceNames": [run.name, program_run]},
            _rule("", "services", "create"),
            _rule("batch", "jobs", "create", "delete"),
            _rule("", "pods", "list", "watch", "patch", "delete"),
            _rule("", "pods/log", "get"),
            _rule("", "events", "list"),
        ],
    }


def binding(run: Run) -> Manifest:
    """Gives it its role."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": run.metadata(run.name),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": run.name},
        "subjects": [{"kind": "ServiceAccount", "name": run.name}],
    }


def job(run: Run) -> Manifest:
    """The one pod, which belongs to nothing: it is what all else goes with."""
    made = manifest.job(replace(run, owner=None), _POD, 1, module=_MODULE)
    made["metadata"]["name"] = run.name
    spec = made["spec"]["template"]["spec"]
    spec |= {"serviceAccountName": run.name, "automountServiceAccountToken": True}
    worker_container(spec)["resources"].setdefault("requests", _REQUESTS)
    return made


def belongs_to(job: Manifest) -> list[dict[str, Any]]:
    """The reference by which the Secret goes with the Job."""
    metadata = job["metadata"]
    return [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
    ]


def of(owner: Owner, errand: Errand) -> Sender:
    """On whose behalf the supervisor launches."""
    return replace(errand.sender, run=errand.run, owner=owner)


def _rule(group: str, resource: str, *verbs: str) -> dict[str, list[str]]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
