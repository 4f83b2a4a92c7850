"""The system calls that mount file systems, with an error that names the mount."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_BIND_WITH_ALL_BELOW = 0x1000 | 0x4000
_PRIVATE_WITH_ALL_BELOW = 0x40000 | 0x4000
_DETACH = 2

_libc = ctypes.CDLL(None, use_errno=True)


def mount(kind: str, target: str, options: str = "") -> None:
    """Mount a file system of this kind."""
    _call(_libc.mount, kind.encode(), target.encode(), kind.encode(), 0, options.encode())


def bind(source: str, target: str) -> None:
    """Show a folder, and all that is mounted below it, in a second place."""
    _call(_libc.mount, source.encode(), target.encode(), None, _BIND_WITH_ALL_BELOW, None)


def keep_private() -> None:
    """Stop the exchange of mounts between this mount namespace and the one that it was copied from."""
    _call(_libc.mount, b"none", b"/", None, _PRIVATE_WITH_ALL_BELOW, None)


def change_root(folder: Path) -> None:
    """Make a folder, which has a mount of its own, this process's root; remove the old root's mounts."""
    os.chdir(folder)
    # The kernel puts the old root on top of the new one, from where it can be removed.
    _call(_libc.pivot_root, b".", b".")
    _call(_libc.umount2, b".", _DETACH)
    os.chdir("/")


def _call(function: ctypes._NamedFuncPointer, *arguments: bytes | int | None) -> None:
    if function(*arguments):
        number = ctypes.get_errno()
        name = f"{function.__name__}{arguments}"
        raise OSError(number, f"{name}: {os.strerror(number)}")
