"""The places on disk that belong to one run.

    <runtime base>/<run id>/            0700, sockets and lock; removed at the end
        lock                            held (flock) by the launching process
        learner-0.courier               a socket for each address
    <log base>/<run id>/                kept
        learner-0.log
        state/learner-0/            `lp.current().state_dir`, made when it is asked for

The runtime base is the first of $XDG_RUNTIME_DIR/launchpad, $TMPDIR/launchpad-<uid>, /tmp/launchpad-<uid>
that keeps every socket path within the 107 bytes that the kernel allows. What a killed run left is swept
at the next launch: a directory whose lock nobody holds has no owner.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from launchpad.errors import LaunchError
from launchpad.launch.logs.files import LogFiles
from launchpad.launch.logs.rotation import Rotation

_SHORT_ID = 8
MAX_SOCKET_PATH = 103 if sys.platform == "darwin" else 107


@dataclass
class RunDirectory:
    """The directories of one run. Made by `create`."""

    run_id: str
    runtime: Path
    logs: Path
    rotation: Rotation = field(default_factory=Rotation)
    _lock: int = -1

    @classmethod
    def create(cls, program: str, addresses: Iterable[str] = ()) -> RunDirectory:
        """Makes the log directory of a new run and chooses the other; sweeps those of dead runs."""
        rotation = Rotation.from_environment()
        name = re.sub(r"[^A-Za-z0-9]+", "-", program)[:24]
        logs = _made_log_directory(f"{name}-{time.strftime('%m%d-%H%M%S')}")
        base = _runtime_base(1 + _SHORT_ID, [socket_name(a) for a in addresses])
        sweep(base)
        return cls(logs.name, base / os.urandom(_SHORT_ID // 2).hex(), logs, rotation)

    def make_runtime(self) -> None:
        """Makes the runtime directory and holds its lock, if it has not been done.

        Done when somebody is there to remove it should this process be killed. Until the lock is held
        another run's sweep may take the directory away; then it is made again.
        """
        while self._lock < 0:
            self.runtime.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(self.runtime / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if os.fstat(lock).st_nlink:
                self._lock = lock
            else:
                os.close(lock)

    def place(self, endpoint: str) -> str:
        """A planned endpoint with this run's directory and a free port filled in."""
        if "{port}" in endpoint:
            from launchpad.address import SimpleLocalAddressBuilder, get_port_from_address

            port = get_port_from_address(SimpleLocalAddressBuilder().build())
            endpoint = endpoint.replace("{port}", str(port))
        return endpoint.replace("{run}", str(self.runtime))

    def log(self, worker: str, attempt: int = 1) -> Path:
        """The file that takes what an attempt of a worker prints."""
        return self.log_files.path(worker, attempt)

    @property
    def log_files(self) -> LogFiles:
        """All that workers of this run have printed."""
        return LogFiles(self.logs)

    def state(self, worker: str) -> Path:
        """Where a worker may leave what its next attempt is to find; made when it is first asked for."""
        return self.logs / "state" / worker

    @property
    def scope(self) -> str:
        """What all addresses of this run that are sockets begin with."""
        return f"unix:{self.runtime}/"

    def remove(self) -> None:
        """Removes the runtime directory; logs stay."""
        shutil.rmtree(self.runtime, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def socket_name(address: str) -> str:
    """A file name for the socket of an address: readable, at most 40 bytes, unique."""
    name = address.replace("/", ".")
    if len(name) <= 40:
        return name
    return f"{name[:23]}-{hashlib.sha256(address.encode()).hexdigest()[:16]}"


def sweep(base: Path) -> None:
    """Removes the directories of runs that nobody holds any more."""
    for directory in base.iterdir() if base.is_dir() else ():
        try:
            fd = os.open(directory / "lock", os.O_RDWR)
        except OSError:
            continue  # just being made or removed by another run
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            pass  # somebody lives there
        finally:
            os.close(fd)


def _made_log_directory(name: str) -> Path:
    base = _log_base()
    logs = base / f"{name}-{os.urandom(2).hex()}"
    try:
        logs.mkdir(parents=True, mode=0o700)
    except FileExistsError:  # of very many launches in one second two drew the same
        return _made_log_directory(name)
    except OSError as error:
        text = f"no directory for logs: {error}. Set LAUNCHPAD_LOGGING_DIR to one that can be written to."
        raise LaunchError(text) from error
    return logs


def _runtime_base(id_length: int, names: list[str]) -> Path:
    longest = max((len(os.fsencode(name)) for name in names), default=0)
    uid = os.getuid()
    candidates = [os.path.join(tempfile.gettempdir(), f"launchpad-{uid}"), f"/tmp/launchpad-{uid}"]
    if os.environ.get("XDG_RUNTIME_DIR"):
        candidates.insert(0, os.path.join(os.environ["XDG_RUNTIME_DIR"], "launchpad"))
    # the server binds under a temporary name first: leave it room
    fitting = [
        c
        for c in candidates
        if len(os.fsencode(c)) + id_length + 1 + longest + 10 <= MAX_SOCKET_PATH
    ]
    for candidate in fitting:
        if _is_private(Path(candidate)):
            return Path(candidate)
    raise LaunchError(
        f"no directory for sockets: tried {candidates}. It must be yours alone (mode 0700) and short"
        f" enough for socket paths of {MAX_SOCKET_PATH} bytes; set TMPDIR to one that is."
    )


def _is_private(directory: Path) -> bool:
    """Whether the directory, made if need be, is ours and closed to others."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    )


def _log_base() -> Path:
    chosen = os.environ.get("LAUNCHPAD_LOGGING_DIR")
    if chosen:
        return Path(chosen).absolute()  # workers may change their directory
    return Path(tempfile.gettempdir()) / f"launchpad-{os.getuid()}-logs"
