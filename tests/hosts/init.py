"""Process 1 of a host: makes the host's root, says that it is up, and waits for orphans.

The switch starts it in new namespaces: `python -m tests.hosts.init NAME DISK READY [SHARED…]`. READY is a
descriptor to which it writes its pid, as numbered outside of the host, or a line that begins with "error".
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tests.hosts import mounts


def main(name: str, disk: str, ready: int, shared: Sequence[str]) -> NoReturn:
    """Boot the host and run it until something kills this process."""
    # Read before the host has a /proc of its own, in which this process is 1.
    pid = os.readlink("/proc/self")
    # Blocked, so that none is missed between two waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        make_root(name, Path(disk), shared)
    except OSError as error:
        os.write(ready, f"error: {error}\n".encode())
        raise
    os.write(ready, f"{pid}\n".encode())
    os.close(ready)
    while True:
        signal.sigwait([signal.SIGCHLD])
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def make_root(name: str, disk: Path, shared: Sequence[str]) -> None:
    """Make the host's file system from this machine's and from what the host's disk has."""
    mounts.keep_private()
    root = disk / "root"
    # The kernel's own, and possibly left as it was when the host lost power.
    shutil.rmtree(disk / "work", ignore_errors=True)
    for folder in ("changes", "work", "root"):
        (disk / folder).mkdir(parents=True, exist_ok=True)
    layers = f"lowerdir=/,upperdir={disk}/changes,workdir={disk}/work"
    mounts.mount("overlay", str(root), layers)
    mounts.bind("/dev", f"{root}/dev")
    mounts.mount("proc", f"{root}/proc")
    # A new one, since the machine's shows the machine's network.
    mounts.mount("sysfs", f"{root}/sys")
    mounts.bind("/sys/fs/cgroup", f"{root}/sys/fs/cgroup")
    mounts.mount("tmpfs", f"{root}/dev/shm", "mode=1777")
    mounts.mount("tmpfs", f"{root}/tmp", "mode=1777")
    mounts.mount("tmpfs", f"{root}/run", "mode=755")
    (root / "run/lock").mkdir()
    for shared_folder in shared:
        Path(f"{root}{shared_folder}").mkdir(parents=True, exist_ok=True)
        mounts.bind(shared_folder, f"{root}{shared_folder}")
    mounts.change_root(root)

    socket.sethostname(name)
    for file, text in {"hostname": f"{name}\n", "resolv.conf": "", "hosts": ""}.items():
        path = Path("/etc", file)
        # It may be a link to somewhere in /run.
        path.unlink(missing_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
