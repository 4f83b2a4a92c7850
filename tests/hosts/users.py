"""Users of hosts, besides root."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.hosts.host import Host

UID = 2000


def add_user(host: Host, name: str, home: Path | None = None) -> None:
    """Add a user with the group of the same name, who can run this interpreter and this checkout.

    Args:
        home: The home directory; /home/NAME if it isn't given. If it exists, it is left as it is.
    """
    folder = home or Path("/home", name)
    host.run(
        ["useradd", f"--uid={UID}", "--user-group", "--shell=/bin/bash", f"--home={folder}", name]
    )
    # A "!" as its password, which useradd writes, is a locked account for an sshd without PAM.
    host.run(["usermod", "--password=*", name])
    inside = path_on(host, folder)
    if not inside.exists():
        inside.mkdir(mode=0o700, parents=True)
        os.chown(inside, UID, UID)
    # On the host's own disk, so nobody may read more on this machine than before.
    for path in (Path(sys.executable), Path(sys.executable).resolve(), Path(__file__)):
        for parent in path.parents[:-1]:
            entry = path_on(host, parent)
            entry.chmod(entry.stat().st_mode | 0o001)


def path_on(host: Host, path: Path) -> Path:
    """Return the path by which this process reaches an absolute path of a host."""
    return host.root / path.relative_to("/")


def write_own_file(host: Host, path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file of the user. The folder that it is in becomes hers, too, and nobody else's."""
    inside = path_on(host, path)
    inside.parent.mkdir(mode=0o700, exist_ok=True)
    os.chown(inside.parent, UID, UID)
    inside.write_text(text)
    os.chown(inside, UID, UID)
    inside.chmod(mode)
