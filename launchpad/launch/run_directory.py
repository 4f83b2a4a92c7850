"""The places on disk that belong to one run.

    <runtime base>/<run id>/            0700; removed at the end
        lock                            held (flock) by the launching process
        run.json                        the record of the run
        learner-0.courier               a socket for each address
        control.socket, control.token   the control endpoint
        learner-0.stacks                what a worker writes when it is asked for its stacks
    <log base>/<run id>/                kept
        learner-0.log
        run.json

What a killed run left is swept at the next launch: a directory whose lock nobody holds has no owner.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from launchpad.errors import LaunchError
from launchpad.launch import bases
from launchpad.launch.claims import Claim
from launchpad.launch.logs.files import LogFiles
from launchpad.launch.logs.rotation import Rotation
from launchpad.launch.logs.sweeping import sweep_old_logs

_SHORT_ID = 8


@dataclass
class RunDirectory:
    """The directories of one run. Made by `create`.

    Attributes:
      claim: What the run holds of this host, if anything.
    """

    run_id: str
    runtime: Path
    logs: Path
    rotation: Rotation = field(default_factory=Rotation)
    claim: Claim | None = None
    _lock: int = -1

    @classmethod
    def create(cls, program: str, addresses: Iterable[str] = ()) -> RunDirectory:
        """Makes the log directory of a new run and chooses the other; sweeps those of dead runs."""
        rotation = Rotation.from_environment()
        name = re.sub(r"[^A-Za-z0-9]+", "-", program)[:24]
        logs = _made_log_directory(f"{name}-{time.strftime('%m%d-%H%M%S')}")
        names = ["control.socket", *(socket_name(address) for address in addresses)]
        base = bases.runtime_base(1 + _SHORT_ID, names)
        bases.sweep(base)
        sweep_old_logs(logs.parent)
        return cls(logs.name, base / os.urandom(_SHORT_ID // 2).hex(), logs, rotation)

    def make_runtime(self) -> None:
        """Makes the runtime directory and holds its lock, if it has not been done.

        Done when somebody is there to remove it should this process be killed. Until the lock is held
        another run's sweep may take the directory away; then it is made again.
        """
        while self._lock < 0:
            self.runtime.mkdir(mode=0o700, exist_ok=True)
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                lock = os.open(self.runtime / bases.LOCK, flags, 0o600)
            except FileNotFoundError:
                continue
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

    def stacks(self, worker: str) -> Path:
        """The file into which a worker's process writes its stacks when it is asked."""
        return self.runtime / f"{worker}.stacks"

    @property
    def scope(self) -> str:
        """What all addresses of this run that are sockets begin with."""
        return f"unix:{self.runtime}/"

    def claimed(self) -> list[int]:
        """The descriptors that keep the run's claim alive: one, or none."""
        return [] if self.claim is None else [self.claim.fd]

    def remove(self) -> None:
        """Removes the runtime directory, and holds nothing more; logs stay."""
        shutil.rmtree(self.runtime, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if self.claim is not None:
            self.claim.release()
            self.claim = None


def socket_name(address: str) -> str:
    """A file name for the socket of an address: readable, at most 40 bytes, unique."""
    name = address.replace("/", ".")
    if len(name) <= 40:
        return name
    return f"{name[:23]}-{hashlib.sha256(address.encode()).hexdigest()[:16]}"


def _made_log_directory(name: str) -> Path:
    logs = bases.log_base() / f"{name}-{os.urandom(2).hex()}"
    try:
        logs.mkdir(parents=True, mode=0o700)
    except FileExistsError:  # of very many launches in one second two drew the same
        return _made_log_directory(name)
    except OSError as error:
        text = f"no directory for logs: {error}. Set LAUNCHPAD_LOGGING_DIR to one that can be written to."
        raise LaunchError(text) from error
    return logs
