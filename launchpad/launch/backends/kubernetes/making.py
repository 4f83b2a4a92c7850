"""Making: what all pods of a run share, before there is any of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from launchpad.errors import LaunchError
from launchpad.launch import record
from launchpad.launch.backends.kubernetes.cluster import rights
from launchpad.launch.backends.kubernetes.cluster.cluster import Cluster, Refused, Unreachable
from launchpad.launch.backends.kubernetes.objects import manifest, names
from launchpad.launch.backends.kubernetes.objects.grace import UNLIMITED_S
from launchpad.launch.backends.kubernetes.objects.run import Owner, Run
from launchpad.launch.backends.kubernetes.post import parcels, shared
from launchpad.launch.backends.kubernetes.sender import Sender
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.backends.origin import Keys
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.run_directory import RunDirectory


def make(
    cluster: Cluster,
    plan: LaunchPlan,
    directory: RunDirectory,
    settings: Settings,
    keys: Keys,
    sender: Sender | None = None,
) -> Run:
    """Makes the Service, and the Secrets with what pods are given; or nothing.

    Args:
      sender: On whose behalf; of this script by default.

    Raises:
      LaunchError: the cluster cannot be reached, or does not allow it; it lists the rights that are missing.
    """
    if sender is None:
        rights.check(cluster)
        sender = Sender.here(settings)
    grace_s = sender.notice_s if sender.notice_s >= 0 else UNLIMITED_S
    stowed = parcels.stowed(
        _for_all(plan, keys, sender, grace_s), manifest.contents(sender.code, plan.workers)
    )
    name = sender.run or names.run_name(plan.program, directory.runtime.name)
    run = Run(plan.program, name, settings, stowed.places, sender.owner, grace_s)
    return _made(cluster, run, stowed.boxes, json.dumps(record.left_behind(directory, plan)))


def _made(cluster: Cluster, run: Run, boxes: Sequence[Mapping[str, bytes]], told: str) -> Run:
    uid = ""
    first, *others = boxes
    try:
        uid = cluster.create(manifest.root(run, first, told))["metadata"]["uid"]
        run = replace(run, owner=Owner(run.name, uid))
        for each in (manifest.service(run), *manifest.others(run, others)):
            cluster.create(each)
    except BaseException as error:
        if uid:
            with contextlib.suppress(Refused, Unreachable):
                cluster.delete("Secret", run.name)
        if isinstance(error, (Refused, Unreachable)):
            raise LaunchError(f"the cluster does not take this program: {error}") from error
        raise
    return run


def _for_all(plan: LaunchPlan, keys: Keys, sender: Sender, grace_s: float) -> dict[str, bytes]:
    return shared.files(
        shared.Shared(plan.program, plan.launch_type, keys, sender.origin, plan.endpoints, grace_s)
    )
