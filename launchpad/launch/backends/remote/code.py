"""The files that hosts without a shared disk are sent: launchpad's, and those of the user's project."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from launchpad.courier import formatting
from launchpad.errors import LaunchError

_NOT_SENT = {"venv", "node_modules", "__pycache__"}
_ENDINGS = {".py", ".pyi", ".json", ".yaml", ".yml", ".toml", ".txt", ".csv"}
_LARGEST_FILE = 256 << 10
_LARGEST = 64 << 20
_LISTED = 5


def files_to_send(project: Path) -> dict[Path, Path]:
    """Return file → its path below the folder that the host will have in its `sys.path`.

    The files are modules of launchpad and of the project, and small files beside them.

    Raises:
        LaunchError: the project is too large; the text lists the largest files.
    """
    package = Path(__file__).parents[3]
    sizes = {path: path.stat().st_size for path in _files(project) if package not in path.parents}
    size = sum(sizes.values())
    if size > _LARGEST:
        largest = sorted(sizes, key=lambda path: -sizes[path])[:_LISTED]
        listed = ", ".join(
            f"{path.relative_to(project)} {formatting.size(sizes[path])}" for path in largest
        )
        raise LaunchError(
            f"the project in {project} has {len(sizes)} files of {formatting.size(size)}, more than the"
            f" {formatting.size(_LARGEST)} that are sent to other hosts. Its largest: {listed}."
            " Have the script in a folder of its own, and data elsewhere"
        )
    names = {path: path.relative_to(package.parent) for path in _files(package)}
    return names | {path: path.relative_to(project) for path in sizes}


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that are sent: nothing from virtual environments, and nothing hidden.

    Folders that this user can't read are left out.
    """
    for root, folders, files in os.walk(folder):
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
