"""The places on disk that belong to one run.

    <runtime base>/<run id>/            0700; removed at the end
        lock                            held (flock) by the launching process
        run.json                        the record of the run
        learner-0.courier               a socket for each address
        courier.token                   the secret of these sockets, for processes that a worker starts
        control.socket, control.token   the control endpoint
        learner-0.stacks                what a worker writes if it is asked for its stacks
    <log base>/<run id>/                kept
        learner-0.log
        run.json
        history.json                    written at the end

The next launch removes what a killed run left. If no process holds a directory's lock, the directory belongs
to no run.

A launch also deletes the logs of runs that ended long ago, but only if they are surely launchpad's. The
directory must belong to this user, have a run's kind of name and files, and be unchanged for
LAUNCHPAD_LOG_DAYS days, and its run must have ended. If a worker has saved a state there, everything stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable
from dataclasses import field
from pathlib import Path

from launchpad.courier import fork
from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.security import keyring, published_token
from launchpad.errors import LaunchError
from launchpad.launch.logs.log_files import LogFiles
from launchpad.launch.logs.rotation import Rotation, number_of
from launchpad.launch.rundir import locations, record
from launchpad.launch.rundir.claims import Claim
from launchpad.state import lock
from launchpad.state.lock import Holder, StateLock
from launchpad.state.places import StatePlaces, is_url

_SHORT_ID = 8

_LOG_DAYS = 30
_DAY_S = 86_400.0
_SWEPT = ".swept"
_SWEEP_PAUSE_S = 3600.0
"""Seconds between two searches of the log base, because launches may follow each other every second."""

_LOG_DIRECTORY = re.compile(r"[A-Za-z0-9-]*-\d{4}-\d{6}-[0-9a-f]{4}")
_LOG_FILE = re.compile(r"[\w.-]+\.log(\.\d+)?|[\w.-]+\.result|(run|history)\.json")


@dataclass(eq=False)
class RunDirectory:
    """The directories of one run. `create` makes them.

    Attributes:
        claim: The GPUs and CPUs of this host that the run holds, if any.
        state_place: The path or URL of the folder in which workers save their state; empty for a folder
            beside the logs.
    """

    run_id: str
    runtime: Path
    logs: Path
    rotation: Rotation = field(default_factory=Rotation)
    claim: Claim | None = None
    state_place: str = ""
    _state_lock: StateLock | None = None
    _lock: int = -1

    def __post_init__(self) -> None:
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """Close the lock in a forked child of the launcher, because the child may run longer than the run."""
        fd = self._lock
        self._lock = -1
        if fd >= 0:
            os.close(fd)

    @classmethod
    def create(cls, program: str, addresses: Iterable[str] = ()) -> RunDirectory:
        """Make the log directory of a new run, and choose its runtime directory. Remove old directories."""
        rotation = Rotation.from_environment()
        # Remove dashes from the beginning, with which commands would take the name for an option.
        name = re.sub(r"[^A-Za-z0-9]+", "-", program).lstrip("-")[:24] or "program"
        name = f"{name}-{time.strftime('%m%d-%H%M%S')}"
        logs = _make_log_directory(name)
        names = ["control.socket", *(socket_name(address) for address in addresses)]
        base = locations.runtime_base(1 + _SHORT_ID, names)
        locations.sweep(base)
        sweep_old_logs(logs)
        return cls(logs.name, base / os.urandom(_SHORT_ID // 2).hex(), logs, rotation)

    def make_runtime(self) -> None:
        """Make the runtime directory, and hold its lock. Do nothing if this run holds it already.

        Call this when there is a process that removes the directory if this one is killed. Until the lock is
        held, another run's sweep may remove the directory; then it is made again.
        """
        while self._lock < 0:
            self.runtime.mkdir(mode=0o700, exist_ok=True)
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                lock = os.open(self.runtime / locations.LOCK, flags, 0o600)
            except FileNotFoundError:
                continue
            fcntl.flock(lock, fcntl.LOCK_SH)
            if os.fstat(lock).st_nlink:
                self._lock = lock
                # This is for processes that the script or a worker starts and gives a client to.
                token = keyring.find(self.scope)
                if token:
                    published_token.write_beside(self.runtime, token)
            else:
                os.close(lock)

    def place(self, endpoint: str) -> str:
        """Return a planned endpoint with this run's directory and a free port filled in."""
        if "{port}" in endpoint:
            import portpicker

            endpoint = endpoint.replace("{port}", str(portpicker.pick_unused_port()))
        return endpoint.replace("{run}", str(self.runtime))

    def log(self, worker: str, attempt: int = 1) -> Path:
        """Return the file for the output of an attempt of a worker."""
        return self.log_files.path(worker, attempt)

    @property
    def log_files(self) -> LogFiles:
        """The logs of all workers of this run."""
        return LogFiles(self.logs)

    def hold_state(self, place: str, program: str) -> None:
        """Have workers save in this folder, and keep other launches out of it. Raise as `lock.hold` does."""

        def is_running(run_id: str) -> bool:
            return any(r.run_id == run_id for r in record.running())

        self._state_lock = lock.hold(place, Holder.here(self.run_id, program), is_running)
        self.state_place = place

    def state(self, worker: str) -> Path:
        """Return the directory in which a worker saves for its next attempt. The worker makes it."""
        is_path = self.state_place and not is_url(self.state_place)
        return (Path(self.state_place) if is_path else self.logs / "state") / worker

    def state_places(self, worker: str, group: str, *, is_one_host: bool = True) -> StatePlaces:
        """Return the places where a worker finds saved state, and saves its own.

        Args:
            is_one_host: True if all workers of the group have this host's directories.
        """
        own = str(self.state(worker))
        place = self.state_place
        is_shared = is_one_host or (place and not is_url(place))
        return StatePlaces(
            own=own,
            saved=f"{place.rstrip('/')}/{worker}" if is_url(place) else own,
            group=str(self.state("groups") / group) if is_shared else "",
            is_kept=bool(place),
            run_id="" if is_one_host else self.run_id,
        )

    def stacks(self, worker: str) -> Path:
        """Return the file into which a worker's process writes its stacks on request."""
        return self.runtime / f"{worker}.stacks"

    @property
    def scope(self) -> str:
        """The common prefix of all addresses of this run that are sockets."""
        return f"unix:{self.runtime}/"

    def claimed(self) -> list[int]:
        """Return the descriptors that hold the run's claim and the folder with its state."""
        of_state = [] if self._state_lock is None else self._state_lock.descriptors
        return [*([] if self.claim is None else [self.claim.fd]), *of_state]

    def remove(self) -> None:
        """Release the claim and the locks, and remove the runtime directory. Logs stay.

        Remove the directory last: once it is gone, all that this run held is free for other launches.
        """
        if self.claim is not None:
            self.claim.release()
            self.claim = None
        if self._state_lock is not None:
            self._state_lock.release()
            self._state_lock = None
        locations.remove(self.runtime)
        self.drop_inherited()


def _make_log_directory(name: str) -> Path:
    """Make a directory in the log base with this name and some more characters, and return it."""
    base = locations.open_log_base(make=True)
    try:
        while True:
            logs = locations.log_base() / f"{name}-{os.urandom(2).hex()}"
            try:
                os.mkdir(logs.name, 0o700, dir_fd=base)
                return logs
            except FileExistsError:  # two launches in the same second drew the same number
                continue
            except OSError as error:
                raise LaunchError(
                    f"no directory for logs: {logs}: {error.strerror}. Set LAUNCHPAD_LOGGING_DIR to one that"
                    " is writable."
                ) from error
    finally:
        os.close(base)


def socket_name(address: str) -> str:
    """Return a file name for the socket of an address: readable, at most 40 bytes, unique."""
    name = address.replace("/", ".")
    if len(name) <= 40:
        return name
    return f"{name[:23]}-{hashlib.sha256(address.encode()).hexdigest()[:16]}"


def sweep_old_logs(new: Path) -> None:
    """Delete logs older than LAUNCHPAD_LOG_DAYS days; 0 keeps them forever.

    Args:
        new: A directory beside the logs that was made just now. Its time is the time of that file system,
            whose clock may differ from this host's.

    Raises:
        LaunchError: LAUNCHPAD_LOG_DAYS is not a number.
    """
    days = number_of("LAUNCHPAD_LOG_DAYS", _LOG_DAYS)
    base = new.parent
    swept = base / _SWEPT
    try:
        if not days or base.lstat().st_uid != os.getuid() or base.is_symlink():
            return
        now = new.stat().st_mtime
        if swept.exists() and 0 <= now - swept.stat().st_mtime < _SWEEP_PAUSE_S:
            return
        swept.touch(0o600)
        directories = [entry for entry in base.iterdir() if _LOG_DIRECTORY.fullmatch(entry.name)]
    except OSError:
        return
    before = now - days * _DAY_S
    for directory in directories:
        with contextlib.suppress(OSError):  # another launch sweeps too
            status = directory.lstat()
            is_ours = status.st_uid == os.getuid() and not stat.S_ISLNK(status.st_mode)
            if status.st_mtime >= before or not is_ours:
                continue
            with os.scandir(directory) as entries:
                files = list(entries)
            are_old_logs = all(
                _LOG_FILE.fullmatch(file.name)
                and file.is_file(follow_symlinks=False)
                and file.stat(follow_symlinks=False).st_mtime < before
                for file in files
            )
            run = record.read(directory) if are_old_logs else None
            if are_old_logs and not (run is not None and run.is_running):
                for file in files:
                    os.unlink(file.path)
                directory.rmdir()
