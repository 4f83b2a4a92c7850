"""A run on a cluster: names of its objects, of their labels and annotations, and of what is in a pod. Pure.

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

RECORD = "launchpad/record"
"""The annotation of the root Secret with the record of the run."""

COMMANDS = "launchpad/orders"
"""The annotation by which the launcher sends a pod commands; a file in `MOUNTED`."""

MOUNTED, WRITABLE, STATE = "/launchpad/given", "/launchpad/run", "/launchpad/state"
"""Folders of a pod: what it is given, where it may write, what a volume may keep for its next attempt."""

STATE_VOLUME = "/launchpad/states"
"""The folder of a pod with the volume in which a launch with `state=` saves."""

STATE_LOCK = "launchpad/state-lock"
"""The label of pods with the name of the Secret by which their run holds its state folder."""

CODE = "code"
"""The content with the user's project."""

FIRST_PORT = 7070
"""The port of a pod's first server; the others have the next ones."""

READY_PORT = 7069
"""Open in a pod when its worker is ready, and not before."""

UNLIMITED_S = 7 * 86400.0
"""A grace without a limit: a cluster needs a number."""

_LONGEST = 63
_ATTEMPT = len("-10000")
_SUFFIX = len("-12345")
"""What the Job controller appends to the name of a Job for that of its pod."""

_NO_DNS = re.compile(r"[^a-z0-9]+")
_RUN_ID = 8
_PROGRAM = 18


@dataclass(frozen=True)
class Owner:
    """A Secret; what it owns is deleted with it."""

    name: str
    uid: str


@dataclass(frozen=True)
class Run:
    """One run of a program on a cluster.

    Attributes:
        name: As `run_name` gives it.
        places: Which Secret has which content.
        owner: The owner of objects made from now on: its root, once that exists.
        files: What each of its pods gets of the root.
        python_flags: What the interpreter of a worker is started with, as the script's was.
        hash_seed: The one of all workers; empty: any.
        state: The folder in the settings' volume in which workers save, or a URL; empty: nothing is kept.
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
        """An object's metadata; `more` are further labels."""
        ours = {**OURS, RUN: self.name, PROGRAM: label(self.program)}
        meta: dict[str, Any] = {"name": name, "labels": {**ours, **more}}
        if self.settings.namespace:
            meta["namespace"] = self.settings.namespace
        if self.owner:
            meta["ownerReferences"] = [
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    **vars(self.owner),
                    "controller": False,
                    "blockOwnerDeletion": True,
                }
            ]
        return meta


def run_name(program: str, run_id: str) -> str:
    """The name of a run, with which the names of all its objects begin.

    Args:
        run_id: Distinguishes it from other runs of the program; its first 8 characters count.
    """
    prefix = _NO_DNS.sub("-", program.lower()).strip("-")[:_PROGRAM].strip("-") or "program"
    prefix = prefix if prefix[0].isalpha() else f"p-{prefix}"  # as a Service's name has to be
    return f"{prefix}-{run_id[:_RUN_ID]}"


def host_name(worker: str) -> str:
    """The host name of a worker's pod, unique in its run."""
    longest = _LONGEST - _PROGRAM - len("p--") - _RUN_ID - _ATTEMPT - _SUFFIX
    return _cut(_NO_DNS.sub("-", worker.lower()).strip("-"), longest, worker)


def job_name(run: str, worker: str, attempt: int) -> str:
    """The name of the Job that is an attempt of a worker."""
    return f"{run}-{host_name(worker)}-{attempt}"


def label(text: str) -> str:
    """The text as a label's value: at most 63 letters, digits, `-`, `_` and `.`."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-_.")
    return _cut(plain, _LONGEST, text)


def labels_of(worker: WorkerPlan) -> dict[str, str]:
    """The labels of a worker's objects: its name, its group and its colocation."""
    own = {GROUP: label(worker.group), WORKER: label(worker.name)}
    return own | ({COLOCATION: label(worker.colocation)} if worker.colocation else {})


def state_places(worker: WorkerPlan, state: str, folder: str) -> StatePlaces:
    """Return where a worker in its pod finds its saved state and saves it. `folder` is its own directory."""
    if not state or is_url(state):
        saved = f"{state.rstrip('/')}/{worker.name}" if state else folder
        return StatePlaces(folder, saved, is_kept=bool(state))
    own = f"{STATE_VOLUME}/{state}/{worker.name}"
    return StatePlaces(own, own, f"{STATE_VOLUME}/{state}/groups/{worker.group}", is_kept=True)


def state_lock(state: str, volume: Mapping[str, Any]) -> str:
    """The name of the Secret that a run has while it saves in this folder of a volume: there can be one."""
    # a claim is the same, however it is mounted
    claim = volume.get("persistentVolumeClaim", {}).get("claimName")
    of = json.dumps([claim or volume, state], sort_keys=True, default=str)
    return f"launchpad-state-{hashlib.sha256(of.encode()).hexdigest()[:16]}"


def grace_s(worker: WorkerPlan, usual_s: float) -> float:
    """Return how long a worker may take to stop: its own time, or the usual one. Negative means no limit."""
    seconds = worker.grace_s(usual_s)
    return UNLIMITED_S if seconds < 0 else min(seconds, UNLIMITED_S)


def _cut(plain: str, longest: int, text: str) -> str:
    """At most so long; a text that had to be cut gets a hash of the whole."""
    if len(plain) <= longest and plain:
        return plain
    mark = hashlib.sha256(text.encode()).hexdigest()[:6]
    return f"{plain[: longest - len(mark) - 1].strip('-_.')}-{mark}".lstrip("-")
