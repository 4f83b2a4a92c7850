"""Rights: what the user who launches must be allowed to do in the namespace."""

from __future__ import annotations

from launchpad.errors import LaunchError
from launchpad.launch.backends.kubernetes.api import Cluster, Refused, Unreachable

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

ALSO = (("list", "Event"), ("list", "Secret"))
"""What is of use, and can be missing: to tell why there is no pod; for `ps`, `logs` and `stop` elsewhere."""


def check(cluster: Cluster) -> None:
    """Looks, before anything is made.

    Raises:
      LaunchError: all that is missing, at once; or the cluster does not answer.
    """
    try:
        missing = [
            f"{verb} {kind.lower()}s" for verb, kind in RIGHTS if not cluster.may(verb, kind)
        ]
    except (Refused, Unreachable) as error:
        raise LaunchError(f"the cluster cannot be used: {error}") from error
    if missing:
        raise LaunchError(
            f"in the namespace {cluster.namespace!r} of the cluster you may not {', '.join(missing)}. Ask for"
            " a role with these rights; docs/backends/kubernetes.md has one to apply"
        )
