"""A run on a cluster: the names of its objects, their labels and annotations, and a pod's folders. Pure.

program "My Program"     run      my-program-3f9a02c1      a Service: <worker>.<run> is a worker's DNS name
worker  trainer-0.1      host     trainer-0-1              at most 63 characters, or cut, with a hash
attempt 2                Job      my-program-3f9a02c1-trainer-0-1-2
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launchpad.launch.backends.kubernetes.pod_inputs import pod_input
from launchpad.launch.backends.kubernetes.pod_inputs.pod_input import Places
from launchpad.launch.backends.kubernetes.settings import Settings
from launchpad.launch.plan import WorkerPlan
from launchpad.state.places import StatePlaces, is_url

RUN, PROGRAM, GROUP, COLOCATION, WORKER, ATTEMPT, ROLE = (
    f"launchpad/{name}"
    for name in ("run", "program", "group", "colocation", "worker", "attempt", "role")
)
OURS = {"app.kubernetes.io/managed-by": "launchpad"}
"""The label that all objects of all runs have."""

_NAME = "app.kubernetes.io/name"
_INSTANCE = "app.kubernetes.io/instance"
"""Labels that tools of others group objects by: the program, and its run."""

RECORD = "record"
"""The entry of a root with the record of the run."""

COMMANDS = "launchpad/orders"
"""The annotation with which the launcher sends commands to a pod. The pod sees it as a file in `MOUNTED`."""

MOUNTED = "/launchpad/given"
WRITABLE = "/launchpad/run"
STATE = "/launchpad/state"
"""Folders of a pod: its input, its writable folder, and its state, which a volume may keep."""

STATE_VOLUME = "/launchpad/states"
"""The folder at which a pod mounts the volume for a launch with `state=`."""

STATE_LOCK = "launchpad/state-lock"
"""The label of pods with the name of the ConfigMap by which their run holds its state folder."""

CODE = "code"
"""The content with the user's project."""

FIRST_PORT = 7070
"""The port of a pod's first server. The others have the next ports."""

READY_PORT = 7069
"""The port that a pod opens when its worker is ready."""

UNLIMITED_S = 7 * 86400.0
"""The grace period that stands for no limit, since a cluster needs a number."""

_LONGEST = 63
_ATTEMPT = len("-10000")
_SUFFIX = len("-12345")
"""The length of the suffix with which the Job controller makes a pod's name from a Job's name."""

_NO_DNS = re.compile(r"[^a-z0-9]+")
_RUN_ID = 8
_PROGRAM = 18


@dataclass(frozen=True)
class Owner:
    """A ConfigMap that owns other objects. The cluster deletes these objects together with it."""

    name: str
    uid: str


@dataclass(frozen=True)
class Run:
    """One run of a program on a cluster.

    Attributes:
        name: The name that `run_name` returns.
        places: Content → the Secrets and files that hold it.
        owner: The owner of objects made from now on: the root, once there is one.
        files: The files of the first Secret that each pod gets.
        python_flags: The flags of a worker's interpreter, the same as the script's.
        hash_seed: The hash seed of all workers; empty means any.
        state: The folder in the settings' volume in which workers save, or a URL; empty if nothing is kept.
    """

    program: str
    name: str
    settings: Settings
    places: Places = field(default_factory=dict)
    owner: Owner | None = None
    grace_s: float = 10.0
    files: tuple[str, ...] = pod_input.FILES
    python_flags: tuple[str, ...] = ()
    hash_seed: str = ""
    state: str = ""

    @property
    def mounts_state(self) -> bool:
        """True if its pods mount the volume for state."""
        return bool(self.state) and not is_url(self.state)

    def metadata(self, name: str, **more: str) -> dict[str, Any]:
        """Return the metadata of an object; `more` are further labels."""
        program = label(self.program)
        ours = {**OURS, _NAME: program, _INSTANCE: self.name, RUN: self.name, PROGRAM: program}
        meta: dict[str, Any] = {"name": name, "labels": {**ours, **more}}
        if self.settings.namespace:
            meta["namespace"] = self.settings.namespace
        if self.owner:
            meta["ownerReferences"] = [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    **vars(self.owner),
                    "controller": False,
                    "blockOwnerDeletion": True,
                }
            ]
        return meta


def run_name(program: str, run_id: str) -> str:
    """Return the name of a run. The names of all its objects begin with it.

    Args:
        run_id: The id that distinguishes this run from others of the program. Only its first 8 characters
            count.
    """
    prefix = _NO_DNS.sub("-", program.lower()).strip("-")[:_PROGRAM].strip("-") or "program"
    # The name of a Service must begin with a letter.
    prefix = prefix if prefix[0].isalpha() else f"p-{prefix}"
    return f"{prefix}-{run_id[:_RUN_ID]}"


def host_name(worker: str) -> str:
    """Return the host name of a worker's pod, unique in its run."""
    longest = _LONGEST - _PROGRAM - len("p--") - _RUN_ID - _ATTEMPT - _SUFFIX
    return _cut(_NO_DNS.sub("-", worker.lower()).strip("-"), longest, worker)


def job_name(run: str, worker: str, attempt: int) -> str:
    """Return the name of the Job of an attempt of a worker."""
    return f"{run}-{host_name(worker)}-{attempt}"


def label(text: str) -> str:
    """Return the text as a label's value: at most 63 letters, digits, `-`, `_` and `.`."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.")
    return _cut(plain, _LONGEST, text)


def labels_of(worker: WorkerPlan) -> dict[str, str]:
    """Return the labels of a worker's objects: its name, its group and its colocation."""
    own = {GROUP: label(worker.group), WORKER: label(worker.name)}
    return own | ({COLOCATION: label(worker.colocation)} if worker.colocation else {})


def state_places(worker: WorkerPlan, state: str, folder: str, run_id: str) -> StatePlaces:
    """Return the places of a worker's state in its pod. `folder` is the worker's own directory.

    With the run's id in them, a pod that goes on behind the launcher's back, on a node that is cut off, saves
    nothing more once the next attempt has begun.
    """
    if not state or is_url(state):
        saved = f"{state.rstrip('/')}/{worker.name}" if state else folder
        return StatePlaces(folder, saved, is_kept=bool(state), run_id=run_id)
    own = f"{STATE_VOLUME}/{state}/{worker.name}"
    group = f"{STATE_VOLUME}/{state}/groups/{worker.group}"
    return StatePlaces(own, own, group, is_kept=True, run_id=run_id)


def state_lock(state: str, volume: Mapping[str, Any]) -> str:
    """Return the name of the lock of a folder in a volume: a ConfigMap that only one run at a time has."""
    # The same claim may be mounted in different ways, so only its name counts.
    claim = volume.get("persistentVolumeClaim", {}).get("claimName")
    of = json.dumps([claim or volume, state], sort_keys=True, default=str)
    return f"launchpad-state-{hashlib.sha256(of.encode()).hexdigest()[:16]}"


def grace_s(worker: WorkerPlan, usual_s: float) -> float:
    """Return how long a worker may take to stop: its own time, or the usual one. Negative means no limit."""
    seconds = worker.grace_s(usual_s)
    return UNLIMITED_S if seconds < 0 else min(seconds, UNLIMITED_S)


def _cut(plain: str, longest: int, text: str) -> str:
    """Return `plain` if it is short enough. Else cut it, and append a hash of `text`."""
    if len(plain) <= longest and plain:
        return plain
    mark = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{plain[: longest - len(mark) - 1].strip('-_.')}-{mark}".lstrip("-")
