"""What all objects of one run have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launchpad.launch.backends.kubernetes.bundle import packed_secrets
from launchpad.launch.backends.kubernetes.manifests import names
from launchpad.launch.backends.kubernetes.settings import Settings


@dataclass(frozen=True)
class Owner:
    """A Secret; what it owns is deleted with it."""

    name: str
    uid: str


@dataclass(frozen=True)
class Run:
    """One run of a program on a cluster.

    Attributes:
        name: As `names.run_name` gives it.
        places: Which Secret has which content, as in `PackedSecrets`.
        owner: The owner of objects made from now on: its root, once that exists.
        files: What each of its pods gets of the root.
    """

    program: str
    name: str
    settings: Settings
    places: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    owner: Owner | None = None
    grace_s: float = 10.0
    files: tuple[str, ...] = packed_secrets.FILES

    def metadata(self, name: str, **more: str) -> dict[str, Any]:
        """An object's metadata; `more` are further labels."""
        ours = {**names.OURS, names.RUN: self.name, names.PROGRAM: names.label(self.program)}
        meta: dict[str, Any] = {"name": name, "labels": {**ours, **more}}
        if self.settings.namespace:
            meta["namespace"] = self.settings.namespace
        if self.owner:
            meta["ownerReferences"] = [
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "name": self.owner.name,
                    "uid": self.owner.uid,
                    "controller": False,
                    "blockOwnerDeletion": True,
                }
            ]
        return meta
