"""Rights: what a user must be allowed to do in the namespace: to launch, and to look after what was left."""

from __future__ import annotations

from collections.abc import Sequence

from launchpad.errors import LaunchError
from launchpad.launch.backends.kubernetes.cluster.api import resource_of
from launchpad.launch.backends.kubernetes.cluster.cluster import (
    Cluster,
    Manifest,
    Refused,
    Unreachable,
)

RIGHTS = (
    ("create", "Secret"),
    ("get", "Secret"),
    ("delete", "Secret"),
    ("create", "Service"),
    ("create", "Job"),
    ("delete", "Job"),
    ("list", "Pod"),
    ("watch", "Pod"),
    ("patch", "Pod"),
    ("delete", "Pod"),
    ("get", "Pod/log"),
)
"""What a launch takes."""

AWAY = (
    ("list", "Secret"),
    ("get", "Secret"),
    ("delete", "Secret"),
    ("delete", "Job"),
    ("list", "Pod"),
    ("patch", "Pod"),
    ("delete", "Pod"),
    ("get", "Pod/log"),
)
"""What it takes to find, read and end a run whose launcher is gone; no launch needs it."""

USEFUL = (("list", "Event"),)
"""What may be missing: it takes it to tell why a worker got no pod."""

LEAVING = (
    *RIGHTS,
    *USEFUL,
    ("patch", "Secret"),
    ("create", "ServiceAccount"),
    ("create", "Role"),
    ("create", "RoleBinding"),
)
"""What it takes to leave a program there; a supervisor gets no right that who leaves it has not."""


def check(cluster: Cluster, needed: Sequence[tuple[str, str]] = RIGHTS) -> None:
    """Looks whether the user has them.

    Raises:
      LaunchError: all that is missing, at once; or the cluster does not answer.
    """
    try:
        missing = [f"{verb} {kind.lower()}s" for verb, kind in _missing(cluster, needed)]
    except (Refused, Unreachable) as error:
        raise LaunchError(f"the cluster cannot be used: {error}") from error
    if missing:
        raise LaunchError(
            f"in the namespace {cluster.namespace!r} of the cluster you may not {', '.join(missing)}. Ask for"
            " a role with these rights; docs/backends/kubernetes.md has one to apply"
        )


def _missing(cluster: Cluster, needed: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """One question tells most of them; what it does not, is asked for one by one."""
    rules = _rules(cluster)
    unknown = [right for right in needed if not any(_gives(rule, *right) for rule in rules)]
    return [right for right in unknown if not cluster.may(*right)]


def _rules(cluster: Cluster) -> Sequence[Manifest]:
    try:
        return cluster.rules()
    except Refused:  # not everybody may ask
        return []


def _gives(rule: Manifest, verb: str, kind: str) -> bool:
    group, resource = resource_of(kind)
    asked = {"verbs": verb, "apiGroups": group, "resources": resource}
    return not rule.get("resourceNames") and all(
        {"*", value} & set(rule.get(of) or ()) for of, value in asked.items()
    )
