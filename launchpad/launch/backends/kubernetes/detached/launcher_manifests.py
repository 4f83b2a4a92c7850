"""The objects of a launcher pod: a supervisor that runs in the cluster after its script has ended.

    Job      <run>-supervisor       one pod; long after its end, the cluster deletes the Job, and so the rest
    └── ConfigMap <run>-supervisor  owns what follows, and the root of the run
        ├── Secret          <run>-supervisor, -001 …    its LauncherSpec, up to a MiB in each
        ├── ConfigMap       <run>-supervisor-begun      marks that the pod has launched
        ├── Secret          <run>-supervisor-answer-…   an answer, until it is read
        ├── ServiceAccount  <run>-supervisor            no other pod of a run has one
        ├── Role, RoleBinding                           what the pod may do
        └── ConfigMap <run> …                           the run, the same as without a supervisor

`create` makes the ConfigMap before the Job, because a pod needs the Secrets and the account that it owns.
Then it makes the Job the ConfigMap's owner. All functions except `create` are pure.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, replace

from launchpad.launch.backends import launcher_info
from launchpad.launch.backends.kubernetes.api import permissions
from launchpad.launch.backends.kubernetes.api.client import RBAC, Cluster, Manifest, resource_of
from launchpad.launch.backends.kubernetes.create_run import Submitter
from launchpad.launch.backends.kubernetes.manifests import manifest, names
from launchpad.launch.backends.kubernetes.manifests.names import Owner, Run, grace_s
from launchpad.launch.backends.kubernetes.manifests.pod_spec import worker_container
from launchpad.launch.backends.kubernetes.pod_inputs import pod_input
from launchpad.launch.backends.kubernetes.pod_inputs.pod_input import Places
from launchpad.launch.backends.kubernetes.pod_status import AttemptFacts
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.state.places import is_url

NAME = "supervisor"
FACTS = AttemptFacts(NAME, 1)
"""The launcher's record of its only attempt."""

POD_NAME = "LAUNCHPAD_POD"
NAMESPACE = "LAUNCHPAD_NAMESPACE"
"""Environment variables of the container with the pod's own name and namespace."""

SPEC = "worker"
"""The content with the LauncherSpec. In the pods of a run, this content has the WorkerPlan."""

ASKED = ("metrics", "history", "stacks", "ask_to_restart", "trace", "picture")
"""The methods of a RemoteLauncher that a question to a launcher pod may call."""

PART = "part"
COUNT = "count"
"""The files of a Secret with a part of an answer, and with the number of its parts."""

_POD = WorkerPlan(NAME, NAME, 0, 1, "supervisor", 0)
"""The launcher pod as the worker of a run of its own."""

_MODULE = "launchpad.launch.backends.kubernetes.launcher_pod"
_REQUESTS = {"cpu": "100m", "memory": "256Mi"}
"""Requests of a launcher pod, so that it isn't the first to be evicted."""

_REPLACED = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
"""The rule by which a pod is replaced that the cluster itself has ended, and not the program in it.

The next pod ends what is left of the program. Clusters before 1.25 don't know this rule, and drop it. They
replace any pod that is deleted.
"""

_GRACE_S = 60.0
"""Seconds of grace for a launcher pod, in addition to the time that its workers may take to stop."""


@dataclass(frozen=True)
class LauncherSpec:
    """The input of a launcher pod: the plan that it launches, the settings, and the asking script."""

    plan: LaunchPlan
    settings: Settings
    submitter: Submitter


def name(run: str) -> str:
    """Return the name of a launcher pod's objects, or the beginning of their names."""
    return f"{run}-{NAME}"


def answer(launcher: str, question: str, part: int) -> str:
    """Return the name of the Secret with a part of an answer."""
    return f"{launcher}-answer-{question}-{part}"


def create(cluster: Cluster, spec: LauncherSpec) -> None:
    """Create all objects of a launcher pod."""
    versions = {pod_input.VERSIONS: json.dumps(launcher_info.versions()).encode()}
    content = {manifest.content_of(_POD): pickle.dumps(spec, protocol=5)}
    files, places = pod_input.pack_secrets(versions, content)
    run = run_of(spec, places)
    root = cluster.create(manifest.root(run, role=NAME))
    owned = replace(run, owner=Owner(run.name, root["metadata"]["uid"]))
    for run_object in (*manifest.inputs(owned, files), *_rights(owned, spec)):
        cluster.create(run_object)
    # The Job with the one pod has no owner, because it owns everything else.
    job = manifest.job(run, _POD, 1, module=_MODULE)
    job["metadata"]["name"] = run.name
    job["spec"]["podFailurePolicy"] = {"rules": [_REPLACED]}
    pod = job["spec"]["template"]["spec"]
    pod |= {"serviceAccountName": run.name, "automountServiceAccountToken": True}
    container = worker_container(pod)
    container["resources"]["requests"] = _REQUESTS | container["resources"]["requests"]
    fields = {POD_NAME: "metadata.name", NAMESPACE: "metadata.namespace"}
    container["env"] = container.get("env", []) + [
        {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for variable, path in fields.items()
    ]
    job_metadata = cluster.create(job)["metadata"]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job_metadata["name"],
        "uid": job_metadata["uid"],
    }
    cluster.patch("ConfigMap", run.name, {"ownerReferences": [owner]})


def run_of(spec: LauncherSpec, places: Places) -> Run:
    """Return the launcher pod as a run of its own."""
    usual_s = spec.submitter.notice_s
    longest_s = max(grace_s(worker, usual_s) for worker in spec.plan.workers)
    return Run(
        spec.plan.program,
        name(spec.submitter.run),
        # The program may have a group with the supervisor's name.
        replace(spec.settings, group_patches={}),
        places,
        grace_s=longest_s + _GRACE_S,
        files=(pod_input.VERSIONS,),
    )


def _rights(run: Run, spec: LauncherSpec) -> list[Manifest]:
    """Return a service account with a launch's rights; it reads and deletes only its own run's ConfigMaps."""
    v1 = {"apiVersion": f"{RBAC}/v1", "metadata": run.metadata(run.name)}
    own_roots = [run.name, spec.submitter.run]
    if spec.plan.state and not is_url(spec.plan.state):
        own_roots.append(names.state_lock(spec.plan.state, spec.settings.state_volume))
    rules = []
    for right in (*permissions.RIGHTS, *permissions.USEFUL):
        group, resource = resource_of(right[0])
        rule = {"apiGroups": [group], "resources": [resource], "verbs": right[1].split()}
        own = {"resourceNames": own_roots} if right is permissions.OWN_ROOTS else {}
        rules.append(rule | own)
    subject = {"kind": "ServiceAccount", "name": run.name}
    role = {"apiGroup": RBAC, "kind": "Role", "name": run.name}
    return [
        {**v1, "kind": "ServiceAccount", "apiVersion": "v1", "automountServiceAccountToken": False},
        {**v1, "kind": "Role", "rules": rules},
        {**v1, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]},
    ]
