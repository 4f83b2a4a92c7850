"""Sending code to executors on other hosts: a zip of launchpad and the project, which Spark unpacks."""

from __future__ import annotations

import threading
import zipfile
from pathlib import Path
from typing import Any

from launchpad.launch.backends.launcher_info import folder_of_script
from launchpad.launch.backends.remote import code
from launchpad.launch.backends.spark import session

FOLDER = "launchpad-code"
"""The folder into which Spark unpacks the zip, among the application's files on each executor."""

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
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, name in code.files_to_send(folder_of_script()).items():
                archive.write(path, name)
        context.addArchive(f"{file}#{FOLDER}")
        _sent.add(context.applicationId)
