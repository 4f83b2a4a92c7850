"""The abilities of a machine that a network of hosts needs.

`python -m tests.hosts.requirements` prints which one is missing, and exits with 3 if one is.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.hosts import cgroups

ROOT = Path(__file__).parents[2]

CANNOT_RUN_HERE = 3
"""The exit status that .ci/ci.py knows."""

_TOOLS = ("ip", "tc", "mount", "unshare", "nsenter", "setpriv")

# It tries each ability of the kernel once, in namespaces that end with it. The messages say which one it was.
_PROBE = """
set -e
ip link add br0 type bridge
ip link add v0 type veth peer name v1
tc qdisc add dev v0 clsact
tc filter add dev v0 ingress u32 match u32 0 0 action mirred egress redirect dev v1
ip tuntap add t0 mode tap
mount -t tmpfs disk /run
mkdir /run/changes /run/work /run/root
mount -t overlay overlay -o lowerdir=/,upperdir=/run/changes,workdir=/run/work /run/root
"""


@functools.cache
def why_not() -> str:
    """Return why there can be no hosts on this machine, or "" if there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a network of hosts needs Linux and root"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"a network of hosts needs {', '.join(missing)}, of iproute2 and util-linux"
    for path in (ROOT, Path(sys.executable).resolve()):
        if path.stat().st_dev != Path("/").stat().st_dev:
            return f"hosts would not see {path}: it is on another file system than /"
    if not cgroups.hierarchies():
        return "hosts could not be frozen: there are no cgroups in /sys/fs/cgroup"
    if not os.access(cgroups.hierarchies()[0], os.W_OK):
        return f"hosts could not be frozen: {cgroups.hierarchies()[0]} is read-only"
    namespaces = ["--net", "--uts", "--ipc", "--mount", "--pid", "--time", "--fork"]
    tried = subprocess.run(
        ["unshare", *namespaces, "sh", "-c", _PROBE],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if tried.returncode:
        return f"the kernel has no namespaces, bridge, filters or overlay for us: {tried.stderr.strip()}"
    return ""


def main() -> int:
    """Print what is missing, and return the exit status."""
    reason = why_not()
    if reason:
        print(reason, file=sys.stderr)
    return CANNOT_RUN_HERE if reason else 0


if __name__ == "__main__":
    sys.exit(main())
