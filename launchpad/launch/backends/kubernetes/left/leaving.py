"""Leaving: a script has its program launched by a supervisor in the cluster, and waits for its first word."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import partial

from launchpad.errors import LaunchError
from launchpad.launch.backends.kubernetes.attempts import endings, jobs
from launchpad.launch.backends.kubernetes.cluster import rights
from launchpad.launch.backends.kubernetes.cluster.api import Api
from launchpad.launch.backends.kubernetes.cluster.cluster import (
    Cluster,
    Manifest,
    Refused,
    Unreachable,
)
from launchpad.launch.backends.kubernetes.cluster.patience import Patience
from launchpad.launch.backends.kubernetes.left import away, supervisor
from launchpad.launch.backends.kubernetes.left.supervised import Supervised
from launchpad.launch.backends.kubernetes.left.supervisor import Errand
from launchpad.launch.backends.kubernetes.objects import manifest, names
from launchpad.launch.backends.kubernetes.objects.run import Owner
from launchpad.launch.backends.kubernetes.post.letters import Begun, Over
from launchpad.launch.backends.kubernetes.sender import Sender
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.detached import Detached
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.record import RunRecord

_LOOK_S = 0.2
_TOLD = endings.Told(supervisor.NAME, 1)
_COULD_NOT = "the supervisor in the cluster could not launch"


def leave_behind(plan: LaunchPlan, settings: Settings, notice_s: float) -> Detached:
    """Has the cluster run a program on its own.

    Raises:
      LaunchError: it does not take it, or its supervisor could not launch it; what was made is deleted.
    """
    cluster = Api(settings.namespace)
    try:
        return leave_on(cluster, plan, settings, notice_s)
    except BaseException:
        cluster.close()
        raise


def leave_on(cluster: Cluster, plan: LaunchPlan, settings: Settings, notice_s: float) -> Detached:
    """The same, on this cluster."""
    rights.check(cluster, rights.LEAVING)
    run = names.run_name(plan.program, os.urandom(4).hex())
    errand = Errand(plan, settings, replace(Sender.here(settings), notice_s=notice_s), run)
    groups = {worker.name: worker.group for worker in plan.workers}
    supervised = Supervised(cluster, run, groups)
    try:
        _make(cluster, errand)
        begun = _begun(cluster, supervised, settings.pending_timeout_s)
    except BaseException as error:
        kept = supervised.delete()
        if isinstance(error, (Refused, Unreachable)):
            raise LaunchError(f"the cluster does not take this program: {error}; {kept}") from error
        if kept:
            error.add_note(kept)
        raise
    return away.explained(cluster, RunRecord(**{**begun.record, "workers": groups}), supervised)


def _make(cluster: Cluster, errand: Errand) -> None:
    stowed = supervisor.files(errand)
    run = supervisor.run_of(errand, stowed.places)
    first, *others = stowed.boxes
    root = cluster.create(manifest.root(run, first, role=supervisor.NAME))
    owned = replace(run, owner=Owner(run.name, root["metadata"]["uid"]))
    for each in (
        *manifest.others(owned, others),
        supervisor.account(owned),
        supervisor.role(owned, errand.run),
        supervisor.binding(owned),
    ):
        cluster.create(each)
    job = cluster.create(supervisor.job(run))
    cluster.give(run.name, supervisor.belongs_to(job))


def _begun(cluster: Cluster, supervised: Supervised, patience_s: float) -> Begun:
    """Its first word."""
    deadline, patience = time.monotonic() + patience_s, Patience()
    while True:
        is_late = time.monotonic() > deadline
        look = partial(_look, cluster, supervised, patience_s, is_late)
        if (begun := patience.ask(look, otherwise=None)) is not None:
            return begun
        time.sleep(_LOOK_S)


def _look(
    cluster: Cluster, supervised: Supervised, patience_s: float, is_late: bool
) -> Begun | None:
    pod = supervised.pod()  # before its letters: one that is over then has written them all
    begun = _heard(supervised, pod)
    if begun is None:
        _check(cluster, supervised, pod, patience_s, is_late)
    return begun


def _heard(supervised: Supervised, pod: Manifest) -> Begun | None:
    for letter in supervised.letters(pod):
        if isinstance(letter, Begun):
            return letter
        if isinstance(letter, Over):
            raise LaunchError(f"{_COULD_NOT}: {letter.why}")
    if endings.is_over(pod):
        raise LaunchError(f"{_COULD_NOT}: {endings.ending(_TOLD, pod, was_deleted=False).cause}")
    return None


def _check(
    cluster: Cluster, supervised: Supervised, pod: Manifest, patience_s: float, is_late: bool
) -> None:
    """Whether there is something to wait for."""
    has_started = endings.has_started(pod)
    if not has_started and (is_late or endings.is_hopeless(pod)):
        why = "" if pod else jobs.why_no_pod(cluster, supervised.supervisor)
        ended = endings.not_begun(_TOLD, pod, "", patience_s, why or endings.UNSAID)
        raise LaunchError(f"the supervisor in the cluster: {ended.cause}. {ended.hint}")
    if has_started and is_late:
        raise LaunchError(f"{_COULD_NOT}: it has said nothing in {patience_s:g} s")
