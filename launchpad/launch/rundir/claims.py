"""Claims of this user's runs on the GPUs and CPUs of this host, so that no two runs get the same ones.

    <directory>/mutex          held while a launch reads the claims and adds its own
    <directory>/<run id>.json  what a run holds; it is valid as long as a process locks this file (flock)

The launcher holds the lock of a claim. So does every process that may still use what is claimed: the workers'
processes, and the processes above them, which end last. The kernel releases the lock when the last of all
these processes ends, in whatever way. So processes that have ended hold nothing, and nothing that a process
still uses is free. Children that the launching script forks do not hold the lock, since they may run longer
than the script.

All launches use one directory, `/tmp/launchpad-<uid>-claims` or $LAUNCHPAD_CLAIMS_DIR, whatever TMPDIR is. A
launch with another directory would not see the claims of the other launches.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path

from launchpad.courier.fork import drop_in_child
from launchpad.courier.light_dataclass import dataclass
from launchpad.courier.security import private_directory
from launchpad.errors import LaunchError
from launchpad.launch.devices.allocation import UNIT
from launchpad.launch.devices.device import Device, listed

OUTER = "LAUNCHPAD_CLAIMS"
"""The variable with the runs that a worker belongs to. It may give what they hold to programs of its own."""

_MUTEX_S = 10.0
"""Seconds that a launch waits for the mutex, which other launches hold for milliseconds."""

_POLL_S = 0.02


@dataclass(frozen=True)
class ClaimRecord:
    """A run and the GPUs and CPUs that it holds.

    Attributes:
        pid: The launcher's process.
        gpus: Uuid of a GPU → how much of the GPU, in units of `allocation.UNIT`.
        cpus: Numbers of CPUs.
        workers: Worker → its GPUs, as written in CUDA_VISIBLE_DEVICES.
        launch: The run that this one is a part of, if its launcher is on another host.
    """

    run_id: str
    program: str
    pid: int
    gpus: Mapping[str, int] = field(default_factory=dict)
    cpus: Sequence[int] = ()
    workers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    launch: str = ""

    @property
    def launcher_is_dead(self) -> bool:
        """True if the launcher has ended. Then the rest of the run will end soon."""
        try:
            os.kill(self.pid, 0)
        except OSError as error:
            return isinstance(error, ProcessLookupError)
        return False


class Claim:
    """A run's own claim. `ClaimTable.add` makes it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        drop_in_child(self)

    def release(self) -> None:
        """End the claim. If a process of the run has not ended yet, the claim ends with that process."""
        self.drop_inherited()
        with contextlib.suppress(LaunchError, OSError), claim_table():
            pass  # opening the table removes ended claims

    def drop_inherited(self) -> None:
        """Close the lock in a forked child of the script, since the child may run longer than the script."""
        fd = self.fd
        self.fd = -1
        if fd >= 0:
            os.close(fd)


@dataclass(frozen=True)
class ClaimTable:
    """A table of all claims, while no other process can change them."""

    directory: Path
    records: Sequence[ClaimRecord]

    def taken(self, besides: str = "") -> Counter[str]:
        """Return uuid → how much of that GPU all runs hold together, besides those of this launch."""
        others = [record for record in self.records if not besides or record.launch != besides]
        return sum((Counter(record.gpus) for record in others), Counter())

    def busy(self) -> Counter[int]:
        """Return number of a CPU → how many runs hold it."""
        return Counter(cpu for record in self.records for cpu in record.cpus)

    def add(self, record: ClaimRecord) -> Claim:
        """Add a claim, and lock it."""
        path = self.directory / f"{record.run_id}.json"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(fd, json.dumps(asdict(record)).encode())
        # If the disk is full, remove the file, because no launch could read half a claim.
        except OSError as error:
            path.unlink()
            os.close(fd)
            raise LaunchError(f"the GPUs cannot be claimed in {self.directory}: {error}") from error
        return Claim(fd)


@contextlib.contextmanager
def claim_table() -> Iterator[ClaimTable]:
    """Lock the claims of running programs for a block. Remove the claims of programs that have ended.

    Raises:
        LaunchError: no directory for claims can be made private to this user, or another launch holds the
            mutex.
    """
    variable = os.environ.get("LAUNCHPAD_CLAIMS_DIR")
    path = Path(variable).absolute() if variable else Path(f"/tmp/launchpad-{os.getuid()}-claims")
    try:
        private_directory.make_private(path)
    except OSError as error:
        raise LaunchError(
            f"no directory for claims on GPUs and CPUs: {private_directory.explained(error)}. It must be"
            " yours alone (mode 0700); or set LAUNCHPAD_CLAIMS_DIR to one that all of your programs use."
        ) from error
    mutex = path / "mutex"
    fd = os.open(mutex, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + _MUTEX_S
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LaunchError(
                        f"another launch has locked {mutex} for {_MUTEX_S:.0f} s, to choose its devices;"
                        " it may be stopped (Ctrl-Z)"
                    ) from None
                time.sleep(0.005)
        records = [record for file in sorted(path.glob("*.json")) for record in _read(file)]
        outer = os.environ.get(OUTER, "").split(":")
        yield ClaimTable(path, [record for record in records if record.run_id not in outer])
    finally:
        with contextlib.suppress(OSError):
            # Closing the descriptor is not enough: a child that was forked in the meantime has a copy of it,
            # and would go on holding the lock.
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def claim(
    choose: Callable[[ClaimTable], ClaimRecord | None],
    is_ending: Callable[[ClaimRecord], bool],
    refusal: Callable[[Sequence[ClaimRecord]], str],
    wait_s: float,
) -> Claim:
    """Claim what `choose` chooses.

    Args:
        choose: Returns the record of the claim; None if others hold too much of the GPUs.
        is_ending: Returns True for a run whose GPUs will be free soon. They are waited for.
        refusal: Takes the runs that hold GPUs. Returns the text of the error.
        wait_s: How long to wait for runs that are ending.

    Raises:
        LaunchError: other runs hold too many of the GPUs.
    """
    deadline = time.monotonic() + wait_s
    while True:
        with claim_table() as table:
            record = choose(table)
            if record is not None:
                return table.add(record)
            holders = [record for record in table.records if record.gpus]
        if not any(map(is_ending, holders)) or time.monotonic() > deadline:
            raise LaunchError(refusal(holders))
        time.sleep(_POLL_S)


def holdings(holders: Sequence[ClaimRecord], devices: Sequence[Device]) -> str:
    """Return a line for each run that holds GPUs: `GPU 0–3, 0.5 of GPU 4: program 'p', run …`."""
    names = {device.uuid: device.id for device in devices}
    lines = ""
    for record in holders:
        whole_gpus = [names.get(uuid, uuid) for uuid, units in record.gpus.items() if units == UNIT]
        shares = [
            f"{units / UNIT:g} of {listed([names.get(uuid, uuid)])}"
            for uuid, units in record.gpus.items()
            if units < UNIT
        ]
        lines += (
            f"\n  {', '.join(filter(None, (listed(whole_gpus), *shares)))}: program {record.program!r}, run"
            f" {record.launch or record.run_id}, process {record.pid}"
        )
    return lines


def worker_environment(run_id: str) -> dict[str, str]:
    """Return environment variables that allow a run's workers to launch within the run's claim."""
    outer = [name for name in os.environ.get(OUTER, "").split(":") if name and name != run_id]
    return {OUTER: ":".join([*outer, run_id])}


def _read(path: Path) -> Iterator[ClaimRecord]:
    """Yield the claim in a file. If no process locks it, remove the file and yield nothing."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError:
        yield ClaimRecord(**json.loads(path.read_bytes()))
    finally:
        os.close(fd)
