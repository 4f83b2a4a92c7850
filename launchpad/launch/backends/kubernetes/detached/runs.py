"""Detached runs on a cluster: the launch through a launcher pod, and the search for runs by label.

Without a launcher, the pods of a run go on, but no worker is restarted.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from launchpad.errors import LaunchError
from launchpad.launch.backends.kubernetes import attempt, pod_status
from launchpad.launch.backends.kubernetes.api import permissions
from launchpad.launch.backends.kubernetes.api.client import Cluster, ClusterError, RetryWindow, T
from launchpad.launch.backends.kubernetes.create_run import Submitter
from launchpad.launch.backends.kubernetes.detached import launcher_manifests, launcher_state
from launchpad.launch.backends.kubernetes.detached.detached_run import (
    DetachedRun,
    acts,
    launcher_pod,
)
from launchpad.launch.backends.kubernetes.detached.launcher_manifests import FACTS, LauncherSpec
from launchpad.launch.backends.kubernetes.manifests import names
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.detached import Detached
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.rundir.record import RunRecord

_POLL_S = 0.2
_NO_POD_S = 5.0
"""Seconds between two looks at why the launcher pod is not there."""

_COULD_NOT = "the supervisor in the cluster could not launch"
_FORBIDDEN = 403
_ROOTS = f"app.kubernetes.io/managed-by=launchpad,{names.ROLE}=root"


def launch(cluster: Cluster, plan: LaunchPlan, settings: Settings, notice_s: float) -> Detached:
    """Have a launcher pod launch a program, and wait until the pod reports that it has done so.

    Raises:
        LaunchError: the cluster refuses, or the launcher pod could not launch. What was created is deleted.
    """
    permissions.check(cluster, permissions.DETACHING)
    run = names.run_name(plan.program, os.urandom(4).hex())
    launcher = launcher_manifests.name(run)
    submitter = replace(Submitter.here(settings), notice_s=notice_s, run=run)
    try:
        launcher_manifests.create(cluster, LauncherSpec(plan, settings, submitter))
        record = _wait_until_launched(cluster, launcher, settings.pending_timeout_s)
    except BaseException as error:
        leftover = ""
        for kind in ("Job", "ConfigMap"):
            try:
                cluster.delete(kind, launcher, policy="Foreground")
            except ClusterError as trouble:
                leftover += f"; not deleted: {kind.lower()}/{launcher} ({trouble})"
        if isinstance(error, ClusterError):
            raise LaunchError(
                f"the cluster does not take this program: {error}{leftover}"
            ) from error
        if leftover:
            error.add_note(leftover.removeprefix("; "))
        raise
    groups = {worker.name: worker.group for worker in plan.workers}
    detached = DetachedRun(cluster, run, groups, launcher, is_asked=True)
    return _detached(cluster, RunRecord(**{**record, "workers": groups}), detached)


def _wait_until_launched(cluster: Cluster, launcher: str, max_wait_s: float) -> dict[str, Any]:
    """Wait for the run's record. Raise LaunchError if the launcher pod fails, or doesn't launch in time."""
    deadline = time.monotonic() + max_wait_s
    looks_at = time.monotonic() + _NO_POD_S
    retry = RetryWindow()
    check = partial(launcher_pod, cluster, launcher)
    while True:
        is_late = time.monotonic() > deadline
        pod: dict[str, Any] = retry.call(check, otherwise={})
        record = launcher_state.read(pod, launcher_state.LAUNCHED)
        if record:
            return dict(record)
        if pod_status.is_over(pod):
            raise LaunchError(
                f"{_COULD_NOT}: {pod_status.ending(FACTS, pod, was_deleted=False).cause}"
            )
        why_no_pod = ""
        if not pod and (is_late or time.monotonic() > looks_at):
            looks_at = time.monotonic() + _NO_POD_S
            ask = partial(attempt.why_no_pod, cluster, launcher)
            why_no_pod = retry.call(ask, otherwise=pod_status.NO_REASON)
        if pod_status.has_started(pod):
            if is_late:
                raise LaunchError(f"{_COULD_NOT}: it has reported nothing in {max_wait_s:g} s")
        elif is_late or pod_status.cannot_start(pod) or pod_status.can_have_no_pod(why_no_pod):
            end = pod_status.not_begun(FACTS, pod, "", max_wait_s, why_no_pod)
            raise LaunchError(f"the supervisor in the cluster: {end.cause}. {end.hint}")
        time.sleep(_POLL_S)


def find(cluster: Cluster) -> list[Detached]:
    """Return the runs on a cluster.

    Raises:
        LaunchError: the cluster doesn't answer, or this user may not list the runs. In the latter case, the
            text names the missing right.
    """
    failure = "runs on the cluster cannot be listed"
    roots, _ = _explained(cluster, failure, cluster.list, "ConfigMap", _ROOTS)
    programs: list[Detached] = []
    for root in roots:
        try:
            record = RunRecord(**json.loads(root["data"][names.RECORD]))
        except (KeyError, TypeError, ValueError):  # of another version, or not a run of launchpad
            continue
        metadata = root["metadata"]
        name = metadata["name"]
        launcher = launcher_manifests.name(name)
        run = DetachedRun(cluster, name, record.workers)
        if launcher in [owner["name"] for owner in metadata.get("ownerReferences", ())]:
            is_asked = acts(launcher_pod(cluster, launcher))
            run = DetachedRun(cluster, name, record.workers, launcher, is_asked)
        programs.append(_detached(cluster, record, run))
    return programs


def _detached(cluster: Cluster, record: RunRecord, run: DetachedRun) -> Detached:
    failure = "the cluster does not tell of this run"
    return Detached(
        record,
        lambda name, *args, **options: _explained(
            cluster, failure, partial(getattr(run, name), *args, **options)
        ),
    )


def _explained(cluster: Cluster, failure: str, call: Callable[..., T], *args: Any) -> T:
    """Return the result of a call. If the cluster refuses, raise LaunchError with the missing rights."""
    try:
        return call(*args)
    except ClusterError as error:
        if error.status == _FORBIDDEN:
            permissions.check(cluster, permissions.DETACHED)
        raise LaunchError(f"{failure}: {error}") from error
