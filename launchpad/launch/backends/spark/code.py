"""The launcher's code for other hosts: launchpad and the project's modules, in a zip that Spark sends."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from launchpad.launch.backends.launch_origin import folder_of_script
from launchpad.launch.backends.spark import session

_NOT_SENT = {"venv", "node_modules", "__pycache__"}

_sent: set[str] = set()
"""The applications that have it."""


def send_to_other_hosts(context: Any) -> None:
    """Has executors on other hosts find it, if there are any; once for each application."""
    if context.applicationId in _sent or not session.other_hosts(context):
        return
    _sent.add(context.applicationId)
    with tempfile.TemporaryDirectory(prefix="launchpad-") as folder:
        file = Path(folder, f"launchpad-code-{context.applicationId}.zip")
        write(file, folder_of_script())
        context.addPyFile(str(file))  # Spark has copied it when this returns


def write(file: Path, project: Path) -> None:
    """Writes the modules of launchpad and of a project into a zip."""
    package = Path(__file__).parents[3]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _modules(package):
            archive.write(path, path.relative_to(package.parent))
        for path in _modules(project):
            if package not in path.parents:
                archive.write(path, path.relative_to(project))


def _modules(folder: Path) -> Iterator[Path]:
    """The files of Python in it, without those of environments."""
    for root, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name not in _NOT_SENT
            and not Path(root, name, "pyvenv.cfg").exists()
        ]
        yield from (Path(root, name) for name in files if name.endswith(".py"))
