"""Run: what all objects of one have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launchpad.launch.backends.kubernetes.objects import labels, names
from launchpad.launch.backends.kubernetes.post import shared
from launchpad.launch.backends.kubernetes.settings import Settings


@dataclass(frozen=True)
class Owner:
    """A Secret, with which all goes that belongs to it."""

    name: str
    uid: str


@dataclass(frozen=True)
class Run:
    """One run of a program on a cluster.

    Attributes:
      name: As `names.run_name` gives it.
      places: Where what its pods are given is, as `parcels.Stowed` says.
      owner: What that which is made now belongs to: its root, once that exists.
      files: What all of its pods get of the root.
    """

    program: str
    name: str
    settings: Settings
    places: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    owner: Owner | None = None
    grace_s: float = 10.0
    files: tuple[str, ...] = shared.FILES

    def metadata(self, name: str, **more: str) -> dict[str, Any]:
        """An object's metadata; `more` are further labels."""
        ours = {
            **labels.OURS,
            labels.RUN: self.name,
            labels.PROGRAM: names.label(self.program),
        }
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
