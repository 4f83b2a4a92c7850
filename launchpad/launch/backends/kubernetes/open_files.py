"""The launcher's limit on open files. It has a log and a connection for each pod that runs."""

from __future__ import annotations

import logging
import resource

from launchpad.errors import LaunchError

_log = logging.getLogger("launchpad.kubernetes")

_FOR_THE_SCRIPT = 256
"""Open files that are left to the script itself, and to what a launch has apart from pods."""


def make_room(n_pods: int) -> None:
    """Raise the soft limit on open files if a launcher of this many pods needs more.

    It is often 1,024, for programs that use select(). A smaller program leaves the limit as it is.

    Raises:
        LaunchError: the hard limit is too low.
    """
    needed = 2 * n_pods + _FOR_THE_SCRIPT
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY or soft_limit >= needed:
        return
    if hard_limit != resource.RLIM_INFINITY and hard_limit < needed:
        raise LaunchError(
            f"{n_pods:,} pods need {needed:,} open files in the launcher, two for each of them, and the"
            f" limit here is {hard_limit:,}. Raise it: `ulimit -n {needed}`, as root or in limits.conf; or"
            " launch with detach=True, where the limit of the cluster's nodes counts"
        )
    _log.debug("the limit on open files is raised from %d to %d", soft_limit, needed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard_limit))
