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
from launchpad.launch.backends.kubernetes.api import Cluster, Refused, Unreachable
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.backends.origin import Keys, Origin, folder_of_script
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.run_directory import RunDirectory

_UNLIMITED_S = 7 * 86400.0


def make(
    cluster: Cluster, plan: LaunchPlan, directory: RunDirectory, settings: Settings, keys: Keys
) -> manifest.Run:
    """Makes the Service, and the Secrets with what pods are given; or nothing.

    Raises:
      LaunchError: the cluster cannot be reached, or does not allow it; it lists the rights that are missing.
    """
    rights.check(cluster)
    notice_s = flags.termination_notice_s()
    grace_s = notice_s if notice_s >= 0 else _UNLIMITED_S
    contents = manifest.contents(project.zipped(folder_of_script()), plan.workers)
    stowed = parcels.stowed(_for_all(plan, keys, grace_s), contents)
    name = names.run_name(plan.program, directory.runtime.name)
    run = manifest.Run(plan.program, name, settings, stowed.places, grace_s=grace_s)
    told = json.dumps(record.left_behind(directory, plan))
    first, *boxes = stowed.boxes
    try:
        root = cluster.create(manifest.root(run, first, told))
        run = replace(run, owner=root["metadata"]["uid"])
        for each in (manifest.service(run), *manifest.others(run, boxes)):
            cluster.create(each)
    except BaseException as error:
        if run.owner:
            with contextlib.suppress(Refused, Unreachable):
                cluster.delete("Secret", run.name)
        if isinstance(error, (Refused, Unreachable)):
            raise LaunchError(f"the cluster does not take this program: {error}") from error
        raise
    return run


def _for_all(plan: LaunchPlan, keys: Keys, grace_s: float) -> dict[str, bytes]:
    origin = Origin.here()
    return shared.files(
        shared.Shared(plan.program, plan.launch_type, keys, origin, plan.endpoints, grace_s)
    )
