"""Making: what all pods of a run share, before there is any of them."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

from launchpad import flags
from launchpad.errors import LaunchError
from launchpad.launch import record
from launchpad.launch.backends.kubernetes import (
    manifest,
    names,
    parcels,
    project,
    rights,
    shared,
)
from launchpad.launch.backends.kubernetes.api import Cluster, Manifest, Refused, Unreachable
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.backends.origin import Keys, Origin, folder_of_script
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.run_directory import RunDirectory

_UNLIMITED_S = 7 * 86400.0


def make(
    cluster: Cluster, plan: LaunchPlan, directory: RunDirectory, settings: Settings, keys: Keys
) -> manifest.Run:
    """Makes the root, the Service and the Secrets with the user's project; or nothing.

    Raises:
      LaunchError: the cluster cannot be reached, or does not allow it; it lists the rights that are missing.
    """
    rights.check(cluster)
    notice_s = flags.termination_notice_s()
    packed = parcels.packed(project.zipped(folder_of_script()))
    run = manifest.Run(
        plan.program,
        names.run_name(plan.program, directory.runtime.name),
        settings,
        n_code=len(packed),
        grace_s=notice_s if notice_s >= 0 else _UNLIMITED_S,
    )
    try:
        root = cluster.create(_root(run, plan, directory, keys))
        run = replace(run, owner=root["metadata"]["uid"])
        for each in (manifest.service(run), *manifest.code(run, packed)):
            cluster.create(each)
    except BaseException as error:
        if run.owner:
            with contextlib.suppress(Refused, Unreachable):
                cluster.delete("Secret", run.name)
        if isinstance(error, (Refused, Unreachable)):
            raise LaunchError(f"the cluster does not take this program: {error}") from error
        raise
    return run


def _root(run: manifest.Run, plan: LaunchPlan, directory: RunDirectory, keys: Keys) -> Manifest:
    ours = shared.Shared(
        plan.program, plan.launch_type, keys, Origin.here(), plan.endpoints, run.grace_s
    )
    told = json.dumps(record.left_behind(directory, plan))
    return manifest.root(run, shared.files(ours), told)
