"""An `ssh` that runs the command on this machine, for tests that need no network between hosts.

A file `<folder>/<host>` may hold shell commands that run on that host before the remote command: they print,
refuse or lose something. Each host calls itself by its name, as other hosts do.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_CALL_ITSELF = """
import os

own = (os.uname().sysname, os.environ["FAKE_HOST"], *os.uname()[2:])
os.uname = lambda: os.uname_result(own)
"""

SCRIPT = """#!/bin/sh
while [ "$1" != -- ]; do
    [ "$1" = -p ] || [ "$1" = -l ] && shift
    shift
done
export SSH_CONNECTION="127.0.0.1 40000 127.0.0.1 22"
host=$2
[ ! -e "{folder}/$host" ] || . "{folder}/$host"
export FAKE_HOST="$host" PYTHONPATH="{folder}/fake_host:$PYTHONPATH"
# Not by exec: a signal that kills the node process must not kill this process, which stands for `ssh`.
sh -c "$3"
"""


def install(folder: Path) -> dict[str, str]:
    """Write the command into a folder, and return the environment in which it is `ssh`."""
    folder.mkdir(exist_ok=True)
    (folder / "fake_host").mkdir(exist_ok=True)
    (folder / "fake_host/sitecustomize.py").write_text(_CALL_ITSELF)
    command = folder / "ssh"
    command.write_text(SCRIPT.format(folder=folder))
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
