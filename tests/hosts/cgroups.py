"""Cgroups that hold all processes of a host, so that they can be found and frozen.

Version 2 is used where it is mounted, otherwise the freezer of version 1.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_LIMIT_S = 10.0
"""How long the kernel may take to freeze processes, or to end killed ones."""

_POLL_S = 0.005


def hierarchies() -> list[Path]:
    """Return the folders in which groups can be made, the preferred one first."""
    version_2 = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")]
    folders = [folder for folder in version_2 if (folder / "cgroup.controllers").exists()]
    freezer = Path("/sys/fs/cgroup/freezer")
    if (freezer / "cgroup.procs").exists():
        folders.append(freezer)
    return folders


class Group:
    """A cgroup. Several processes may have an object for the same one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.members = folder / "cgroup.procs"

    @classmethod
    def create(cls, name: str) -> Group:
        """Make a group in the preferred hierarchy."""
        folder = hierarchies()[0] / name
        folder.mkdir()
        return cls(folder)

    def add(self, pid: int) -> None:
        """Move a process into the group. Its future children will be members, too."""
        self.members.write_text(str(pid))

    def pids(self) -> list[int]:
        """Return the members; processes of other pid namespaces that cannot be named here are 0."""
        return [int(line) for line in self.members.read_text().split()]

    def freeze(self) -> None:
        """Stop all members, and return once the kernel says that none of them runs."""
        if self._is_version_2():
            (self.folder / "cgroup.freeze").write_text("1")
            for _ in _attempts(f"freeze {self.folder}"):
                if "frozen 1" in (self.folder / "cgroup.events").read_text():
                    return
        state = self.folder / "freezer.state"
        for _ in _attempts(f"freeze {self.folder}"):
            # Written again each time, since version 1 may miss a process that was just being forked.
            state.write_text("FROZEN")
            if state.read_text().strip() == "FROZEN":
                return

    def thaw(self) -> None:
        """Let the members go on."""
        if self._is_version_2():
            (self.folder / "cgroup.freeze").write_text("0")
        else:
            (self.folder / "freezer.state").write_text("THAWED")

    def remove(self) -> None:
        """Kill all members and remove the group."""
        for _ in _attempts(f"remove {self.folder}"):
            try:
                self.thaw()
                for pid in self.pids():
                    if pid:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                self.folder.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                # Killed processes are members until they have been waited for.
                continue

    def _is_version_2(self) -> bool:
        return (self.folder / "cgroup.freeze").exists()


def _attempts(action: str) -> Iterator[None]:
    """Yield until the limit, then raise."""
    deadline = time.monotonic() + _LIMIT_S
    while time.monotonic() < deadline:
        yield
        time.sleep(_POLL_S)
    raise TimeoutError(f"the kernel did not {action} within {_LIMIT_S:g} s")
