"""The creation of the objects that all pods of a run share, before its first pod."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from launchpad import command_line
from launchpad.errors import LaunchError
from launchpad.launch.backends.kubernetes import pod_status
from launchpad.launch.backends.kubernetes.api import permissions
from launchpad.launch.backends.kubernetes.api.client import ApiError, Cluster, ClusterError
from launchpad.launch.backends.kubernetes.manifests import manifest, names
from launchpad.launch.backends.kubernetes.manifests.names import Owner, Run
from launchpad.launch.backends.kubernetes.pod_inputs import archives, pod_input
from launchpad.launch.backends.kubernetes.pod_inputs.pod_input import RunConfig
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.backends.launcher_info import LauncherInfo, RunSecrets, folder_of_script
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir import record
from launchpad.launch.rundir.directory import RunDirectory

_EXISTS = 409
_NOT_FOUND = 404

_LOCK_TRIES = 5
_LOCK_PAUSE_S = 0.3
"""The number of tries to take a lock whose run is gone or just ending, and the seconds between two tries."""


@dataclass(frozen=True)
class Submitter:
    """The launching script: the data about it that its run needs.

    Attributes:
        origin: Its command line, and the places of its code.
        code: The modules beside it, zipped. Empty if they are not sent.
        notice_s: How long workers may take to stop. Negative means no limit.
        run: The name of the run, if it was chosen already.
        owner: The owner of the run's root, if it has one.
    """

    origin: LauncherInfo
    code: bytes
    notice_s: float
    run: str = ""
    owner: Owner | None = None

    @classmethod
    def here(cls, settings: Settings) -> Submitter:
        code = archives.zipped(folder_of_script()) if settings.send_code else b""
        return cls(LauncherInfo.here(), code, command_line.termination_notice_s())


def make(
    cluster: Cluster,
    plan: LaunchPlan,
    directory: RunDirectory,
    settings: Settings,
    keys: RunSecrets,
    submitter: Submitter | None = None,
) -> Run:
    """Create the root, the Service, and the Secrets with the pods' input: all of these objects, or none.

    Args:
        submitter: The launching script; by default this process's script.

    Raises:
        LaunchError: the cluster can't be reached, or refuses. In the latter case, the text lists the missing
            rights.
    """
    if submitter is None:
        permissions.check(cluster)
        submitter = Submitter.here(settings)
    grace_s = submitter.notice_s if submitter.notice_s >= 0 else names.UNLIMITED_S
    config = RunConfig(
        plan.program,
        plan.launch_type,
        keys,
        submitter.origin,
        plan.endpoints,
        grace_s,
        plan.state,
        directory.run_id,
    )
    files, places = pod_input.pack_secrets(
        config.files(), manifest.contents(submitter.code, plan.workers)
    )
    run = Run(
        plan.program,
        submitter.run or names.run_name(plan.program, directory.runtime.name),
        settings,
        places,
        submitter.owner,
        grace_s,
        python_flags=submitter.origin.interpreter.flags,
        hash_seed=submitter.origin.interpreter.hash_seed,
        state=plan.state,
    )
    uid = ""
    try:
        root = manifest.root(run, json.dumps(record.left_behind(directory, plan)))
        uid = cluster.create(root)["metadata"]["uid"]
        run = replace(run, owner=Owner(run.name, uid))
        if run.mounts_state:
            _lock_state(cluster, run)
        for run_object in (manifest.service(run), *manifest.inputs(run, files)):
            cluster.create(run_object)
    except BaseException as error:
        if uid:
            with contextlib.suppress(ClusterError):
                cluster.delete("ConfigMap", run.name)
        if isinstance(error, ClusterError):
            raise LaunchError(f"the cluster does not take this program: {error}") from error
        raise
    return run


def _lock_state(cluster: Cluster, run: Run) -> None:
    """Hold the run's state folder in the cluster, by a ConfigMap that is deleted with the run.

    The cluster deletes this ConfigMap before pods that are just stopping, and these pods still save. So look
    for such pods, too.

    Raises:
        LaunchError: another run holds the folder, or a pod of another run still uses it.
    """
    name = names.state_lock(run.state, run.settings.state_volume)
    last_error: ApiError | None = None
    for _ in range(_LOCK_TRIES):
        try:
            cluster.create(manifest.config_map(run, name, {}))
            break
        except ApiError as error:
            if error.status != _EXISTS:
                raise
            last_error = error
        try:
            metadata = cluster.read("ConfigMap", name)["metadata"]
            (holder,) = metadata["ownerReferences"]
            if _is_there(cluster, holder):
                raise _in_use(cluster, run, f"run {holder['name']}")
            # The lock's run is gone. The uid protects a lock that another launch has just taken.
            cluster.delete("ConfigMap", name, uid=metadata["uid"])
        except ApiError as error:
            last_error = error
        time.sleep(_LOCK_PAUSE_S)
    else:
        raise LaunchError(
            f"state={run.state!r} may be in use: its lock, the ConfigMap {name} in namespace"
            f" {cluster.namespace!r}, could not be had in {_LOCK_TRIES} tries: {last_error}. If no other run"
            f" uses that folder, delete it: `kubectl delete configmap {name} -n {cluster.namespace}`"
        )
    pods, _ = cluster.list("Pod", f"{names.STATE_LOCK}={name}")
    for pod in pods:
        if not pod_status.is_over(pod):
            meta = pod["metadata"]
            raise _in_use(cluster, run, f"pod {meta['name']} of run {meta['labels'][names.RUN]}")


def _is_there(cluster: Cluster, owner: Mapping[str, Any]) -> bool:
    """Return True if this owner of a lock still exists."""
    try:
        return bool(cluster.read("ConfigMap", owner["name"])["metadata"]["uid"] == owner["uid"])
    except ApiError as error:
        if error.status != _NOT_FOUND:
            raise
        return False


def _in_use(cluster: Cluster, run: Run, user: str) -> LaunchError:
    return LaunchError(
        f"state={run.state!r} is in use by {user} in namespace {cluster.namespace!r}. Two launches cannot"
        " save into one folder: wait for the other one, end it with `python -m launchpad stop`, or name"
        " another folder."
    )
