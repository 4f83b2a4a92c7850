"""The files that hosts without a shared disk are sent: launchpad's, and those of the user's project."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from launchpad.courier import formatting
from launchpad.errors import LaunchError

_NOT_SENT = {"venv", "node_modules", "__pycache__"}
_ENDINGS = {".py", ".pyi", ".json", ".yaml", ".yml", ".toml", ".txt", ".csv"}
_LARGEST_FILE = 256 << 10
_LARGEST = 64 << 20
_LISTED = 5
_WALK_S = 30.0
_REMEDY = "Have the script in a folder of its own, and data elsewhere"


def files_to_send(project: Path) -> dict[Path, Path]:
    """Return file → its path below the folder that the host will have in its `sys.path`.

    The files are modules of launchpad and of the project, and small files beside them.

    Raises:
        LaunchError: the project is too large; the text lists the largest files that were found.
    """
    package = Path(__file__).parents[3]
    sizes: dict[Path, int] = {}
    total = 0
    for path in _files(project):
        if package in path.parents:
            continue
        sizes[path] = path.stat().st_size
        total += sizes[path]
        # The script may be in a home directory: don't look at all that is there.
        if total > _LARGEST:
            largest = sorted(sizes, key=lambda path: -sizes[path])[:_LISTED]
            listed = ", ".join(
                f"{path.relative_to(project)} {formatting.size(sizes[path])}" for path in largest
            )
            raise LaunchError(
                f"the project in {project} is larger than the {formatting.size(_LARGEST)} that are sent to"
                f" other hosts. The largest of its first {len(sizes)} files: {listed}. {_REMEDY}"
            )
    names = {path: path.relative_to(package.parent) for path in _files(package)}
    return names | {path: path.relative_to(project) for path in sizes}


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that are sent: nothing from virtual environments, and nothing hidden.

    Folders that this user can't read are left out.

    Raises:
        LaunchError: there is too much to look at.
    """
    gives_up_at = time.monotonic() + _WALK_S
    for root, folders, files in os.walk(folder):
        if time.monotonic() > gives_up_at:
            raise LaunchError(
                f"the project in {folder} has more files than can be looked at within {_WALK_S:g} s."
                f" {_REMEDY}"
            )
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _NOT_SENT
            and not os.path.exists(os.path.join(root, name, "pyvenv.cfg"))
        ]
        for path in (Path(root, name) for name in files if not name.startswith(".")):
            is_sent = path.suffix in _ENDINGS and os.path.isfile(path)
            if is_sent and path.stat().st_size <= _LARGEST_FILE:
                yield path
