"""Creates what all pods of a run share, before there is any of them."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, replace

from launchpad import flags
from launchpad.errors import LaunchError
from launchpad.launch.backends.kubernetes.api import permissions
from launchpad.launch.backends.kubernetes.api.client import Cluster, ClusterError
from launchpad.launch.backends.kubernetes.manifests import manifest, names
from launchpad.launch.backends.kubernetes.manifests.names import Owner, Run
from launchpad.launch.backends.kubernetes.pod_inputs import archives, packed_secrets
from launchpad.launch.backends.kubernetes.pod_inputs.packed_secrets import RunConfig
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.backends.launch_origin import LauncherInfo, RunSecrets, folder_of_script
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir import record
from launchpad.launch.rundir.directory import RunDirectory


@dataclass(frozen=True)
class Submitter:
    """What a run takes over from its launching script.

    Attributes:
        code: The modules beside it, zipped; empty where they are not to be sent.
        notice_s: How long workers may take to stop; negative means no limit.
        run: The name of the run, if it was chosen before.
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
        return cls(LauncherInfo.here(), code, flags.termination_notice_s())


def make(
    cluster: Cluster,
    plan: LaunchPlan,
    directory: RunDirectory,
    settings: Settings,
    keys: RunSecrets,
    submitter: Submitter | None = None,
) -> Run:
    """Creates the Service and the Secrets with what pods are given; all of them, or none.

    The launching script is this one by default.

    Raises:
        LaunchError: the cluster cannot be reached, or does not allow it; it lists the rights that are
            missing.
    """
    if submitter is None:
        permissions.check(cluster)
        submitter = Submitter.here(settings)
    grace_s = submitter.notice_s if submitter.notice_s >= 0 else names.UNLIMITED_S
    config = RunConfig(
        plan.program, plan.launch_type, keys, submitter.origin, plan.endpoints, grace_s
    )
    (first, *others), places = packed_secrets.pack_secrets(
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
    )
    uid = ""
    try:
        root = manifest.root(run, first, json.dumps(record.left_behind(directory, plan)))
        uid = cluster.create(root)["metadata"]["uid"]
        run = replace(run, owner=Owner(run.name, uid))
        for each in (manifest.service(run), *manifest.others(run, others)):
            cluster.create(each)
    except BaseException as error:
        if uid:
            with contextlib.suppress(ClusterError):
                cluster.delete("Secret", run.name)
        if isinstance(error, ClusterError):
            raise LaunchError(f"the cluster does not take this program: {error}") from error
        raise
    return run
