"""Sending code to other hosts: launchpad and the project, in a zip that Spark sends and unpacks."""

from __future__ import annotations

import os
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launchpad.courier import formatting
from launchpad.errors import LaunchError
from launchpad.launch.backends.launcher_info import folder_of_script
from launchpad.launch.backends.spark import session

FOLDER = "launchpad-code"
"""The folder into which Spark unpacks the zip, among the application's files on each executor."""

_NOT_SENT = {"venv", "node_modules", "__pycache__"}
_ENDINGS = {".py", ".pyi", ".json", ".yaml", ".yml", ".toml", ".txt", ".csv"}
_LARGEST_FILE = 256 << 10
_LARGEST = 64 << 20
_LISTED = 5

_sent: set[str] = set()
"""The ids of applications that have the zip."""

# Held until the zip was sent, so that a second launch neither sends it again nor writes into it.
_sending = threading.Lock()


def send_to_other_hosts(context: Any) -> None:
    """Send the code to executors on other hosts, if there are any, once for each application.

    Raises:
        LaunchError: the project is too large; the text lists the largest files.
    """
    with _sending:
        if context.applicationId in _sent or not session.other_hosts(context):
            return
        # Executors fetch the zip when they first run a task. Its folder is removed with the application.
        file = Path(context._temp_dir, f"{FOLDER}.zip")
        write(file, folder_of_script())
        context.addArchive(f"{file}#{FOLDER}")
        _sent.add(context.applicationId)


def write(file: Path, project: Path) -> None:
    """Write launchpad and a project into a zip: modules, and small files beside them.

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
            f" {formatting.size(_LARGEST)} that are sent to executors on other hosts. Its largest: {listed}."
            " Have the script in a folder of its own, and data elsewhere"
        )
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _files(package):
            archive.write(path, path.relative_to(package.parent))
        for path in sizes:
            archive.write(path, path.relative_to(project))


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that are sent: nothing from virtual environments, and nothing hidden."""
    for root, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _NOT_SENT
            and not Path(root, name, "pyvenv.cfg").exists()
        ]
        for path in (Path(root, name) for name in files if not name.startswith(".")):
            is_sent = path.suffix in _ENDINGS and path.is_file()
            if is_sent and path.stat().st_size <= _LARGEST_FILE:
                yield path
