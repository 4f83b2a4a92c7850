"""How a Python process of ours begins: its command line.

It gets the launcher's sys.path before it imports anything, since without it launchpad itself might not be
found: a checkout beside the script, a folder that a test added.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

_PACKAGE = "launchpad.launch.backends.processes"


def command(entry: str, *arguments: int | str, python: str = "") -> list[str]:
    """The command that calls `entry`, such as `subreaper:main`, with these arguments.

    Another interpreter has a standard library and packages of its own, so it only gets the rest of our path.
    """
    module, _, function = entry.partition(":")
    path = (
        f"sys.path[:0] = {_own_folders(sys.path)!a}"
        if python
        else f"sys.path[:] = {_texts(sys.path)!a}"
    )
    call = f"from {_PACKAGE}.{module} import {function}; {function}{arguments!a}"
    # Private, but what multiprocessing uses for the same purpose; -X, -W and -O are nowhere else.
    flags: list[str] = [] if python else getattr(subprocess, "_args_from_interpreter_flags", list)()
    return [python or sys.executable, *flags, "-c", f"import sys; {path}; {call}"]


def _own_folders(path: Sequence[str]) -> list[str]:
    """The entries that belong to no installation of Python."""
    import sysconfig

    installed = tuple(
        {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    )
    return [
        p
        for p in _texts(path)
        if not p.startswith(installed) and not p.endswith((".zip", "-packages"))
    ]


def _texts(path: Sequence[str]) -> list[str]:
    return [str(entry) for entry in path]
