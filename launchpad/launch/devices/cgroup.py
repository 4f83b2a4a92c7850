"""The files of this process's control groups, versions 1 and 2."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

ROOT = "/sys/fs/cgroup"
OWN = "/proc/self/cgroup"


def paths(names: Mapping[str, str], *, with_parents: bool = False) -> Iterator[str]:
    """Yield the paths at which a file of this process's group may be.

    In a container, the group's path is often the one that the host sees, so the root is among the paths.

    Args:
        names: Controller → the file's name; empty for version 2.
        with_parents: True for the files of the groups above as well, whose limits hold too.
    """
    for line in text_of(OWN).splitlines():
        _, controllers, group = line.split(":", 2)
        for controller, name in names.items():
            if controller in controllers.split(","):
                root = os.path.join(ROOT, controller)
                yield f"{root}{group}/{name}"
                parent = group.rpartition("/")[0]
                while with_parents and parent:
                    yield f"{root}{parent}/{name}"
                    parent = parent.rpartition("/")[0]
                yield os.path.join(root, name)


def text_of(path: str) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        with open(path) as file:
            return file.read()
    except (OSError, ValueError):
        return ""
