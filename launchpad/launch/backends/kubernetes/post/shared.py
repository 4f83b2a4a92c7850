"""Shared: what all pods of a run are given, and how a pod reads it."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launchpad.launch.backends.kubernetes.post import parcels
from launchpad.launch.backends.origin import Keys, Origin
from launchpad.launch.plan import WorkerPlan

VERSIONS, SHARED = "versions", "shared"
"""Files of the root Secret. The first is text, which any Python can read."""

FILES = (VERSIONS, SHARED)

UNLIKE = "the image is not like the launcher: {}"
ALIKE = "make an image with the launcher's versions, since what they pickle is not always the same"


@dataclass(frozen=True)
class Shared:
    """The same for all workers of a run.

    Attributes:
      places: Address name → where it is, for other pods.
      grace_s: How long a worker may take to stop.
    """

    program: str
    launch_type: str
    keys: Keys
    origin: Origin
    places: Mapping[str, str]
    grace_s: float


def versions() -> dict[str, str]:
    """What must be the same where something is pickled and where it is unpickled."""
    import cloudpickle

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"Python": python, "cloudpickle": cloudpickle.__version__}


def files(shared: Shared) -> dict[str, bytes]:
    """The files of the root Secret."""
    return {VERSIONS: versions_file(), SHARED: pickle.dumps(shared, protocol=5)}


def versions_file() -> bytes:
    """What is looked at first."""
    return json.dumps(versions()).encode()


def differences(given: Path) -> str:
    """In what this pod differs from the launcher; empty if it does not."""
    theirs = json.loads((given / VERSIONS).read_text())
    ours = versions()
    return " and ".join(
        f"{name} {ours[name]} here, {theirs[name]} there"
        for name in ours
        if ours[name] != theirs[name]
    )


def load(given: Path) -> Shared:
    """What all are given."""
    shared = pickle.loads((given / SHARED).read_bytes())
    assert isinstance(shared, Shared)
    return shared


def worker(given: Path) -> WorkerPlan:
    """What this pod runs."""
    plan = pickle.loads(parcels.unpacked(given, "worker"))
    assert isinstance(plan, WorkerPlan)
    return plan
