"""The rights that a user needs in the namespace: to launch, and to manage detached runs."""

from __future__ import annotations

from collections.abc import Sequence

from launchpad.errors import LaunchError
from launchpad.launch.backends.kubernetes.api.client import (
    ApiError,
    Cluster,
    ClusterError,
    resource_of,
)

OWN_ROOTS = ("ConfigMap", "get delete")
RIGHTS = (
    ("ConfigMap", "create"),
    OWN_ROOTS,
    ("Secret", "create"),
    ("Service", "create"),
    ("Job", "create delete"),
    ("Pod", "list watch patch delete"),
    ("Pod/log", "get"),
)
"""The rights for a launch: kinds and verbs. A launch reads and deletes only ConfigMaps of its own run."""

DETACHED = (
    ("ConfigMap", "list get delete"),
    ("Job", "delete"),
    ("Pod", "list patch delete"),
    ("Pod/log", "get"),
)
"""The rights to find, read and end a run whose launcher is gone. A launch doesn't need them."""

USEFUL = (("Event", "list"),)
"""Rights that may be missing. launchpad uses them to explain why a worker got no pod."""

DETACHING = (
    *RIGHTS,
    *USEFUL,
    ("ConfigMap", "patch"),
    ("ServiceAccount", "create"),
    ("Role", "create"),
    ("RoleBinding", "create"),
)
"""The rights to detach a program. Its launcher pod gets no right that the user lacks."""

ASKING = (("Secret", "get delete"),)
"""The rights to ask the launcher pod of a detached program for stacks, metrics or a restart, say."""


def check(cluster: Cluster, rights: Sequence[tuple[str, str]] = RIGHTS) -> None:
    """Check that the user has these rights.

    Raises:
        LaunchError: rights are missing, and the text lists all of them; or the cluster doesn't answer.
    """
    try:
        try:
            rules = cluster.rules()  # one request for most of them
        except ApiError:  # not every user may ask for rules
            rules = []
        missing = []
        for verb, kind in [(verb, kind) for kind, verbs in rights for verb in verbs.split()]:
            group, resource = resource_of(kind)
            attributes = {"verbs": verb, "apiGroups": group, "resources": resource}
            is_allowed = any(
                not rule.get("resourceNames")
                and all({"*", value} & set(rule.get(of) or ()) for of, value in attributes.items())
                for rule in rules
            )
            if not is_allowed and not cluster.may(verb, kind):
                missing.append(f"{verb} {kind.lower()}s")
    except ClusterError as error:
        raise LaunchError(f"the cluster cannot be used: {error}") from error
    if missing:
        raise LaunchError(
            f"in the namespace {cluster.namespace!r} of the cluster you may not {', '.join(missing)}. Ask for"
            " a role with these rights; docs/backends/kubernetes.md has one to apply"
        )
