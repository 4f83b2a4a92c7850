"""Claims: what the living runs of this user hold on this host, GPUs and CPUs, so that no two get the same.

    <directory>/mutex          held while one reads the claims and adds its own
    <directory>/<run id>.json  what a run holds; it counts for as long as somebody locks it (flock)

The lock of a claim is held by the launcher and by every process that may still use what is claimed: those
of workers, and those above them, which end last. The kernel lets go of it with the last of them, however
they end; so nothing is held by the dead, and nothing is free of which a process still makes use. What the
launching script forks has no part in it, since that may live longer than the script.

The directory is one for all, `/tmp/launchpad-<uid>-claims` or $LAUNCHPAD_CLAIMS_DIR, whatever TMPDIR says:
who looks elsewhere would not see the others.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from launchpad.courier.forking import drop_in_child
from launchpad.errors import LaunchError
from launchpad.launch import bases

OUTER = "LAUNCHPAD_CLAIMS"
"""In a worker's environment: the runs it belongs to. What those hold, it may give to programs of its own."""


_MUTEX_S = 10.0
"""How long one waits for others to have chosen, which takes them milliseconds."""


@dataclass(frozen=True)
class Holding:
    """What one run holds.

    Attributes:
      pid: The launcher.
      gpus: Uuid → how much of it, in units of `allocation.UNIT`.
      cpus: Numbers of CPUs.
      workers: Worker → the GPUs that it has, as they stand in CUDA_VISIBLE_DEVICES.
    """

    run_id: str
    program: str
    pid: int
    gpus: Mapping[str, int] = field(default_factory=dict)
    cpus: Sequence[int] = ()
    workers: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def is_of_the_dead(self) -> bool:
        """Whether its launcher has ended; what is left of the run will soon."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        return False


class Claim:
    """A run's own claim. Made by `Ledger.add`."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path, self.fd = path, fd
        self._is_open = True
        drop_in_child(self)

    def release(self) -> None:
        """Ends the claim, unless some process of the run still lives: then it ends with that."""
        self.drop_inherited()
        with contextlib.suppress(LaunchError, OSError), ledger():
            pass  # to open it sweeps it

    def drop_inherited(self) -> None:
        """Closes it, as a child must that a script forks: it may live longer than the script."""
        if self._is_open:
            self._is_open = False
            os.close(self.fd)


class Ledger:
    """All claims, while nobody else can change them."""

    def __init__(self, directory: Path, held: Sequence[Holding]) -> None:
        self._directory = directory
        self.held = held

    def taken(self) -> Counter[str]:
        """Uuid → how much of a GPU the runs hold, all together."""
        return sum((Counter(holding.gpus) for holding in self.held), Counter())

    def busy(self) -> Counter[int]:
        """Number of a CPU → how many runs hold it."""
        return Counter(cpu for holding in self.held for cpu in holding.cpus)

    def add(self, holding: Holding) -> Claim:
        """Adds a claim, and locks it."""
        path = self._directory / f"{holding.run_id}.json"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(fd, json.dumps(asdict(holding)).encode())
        except OSError as error:  # a full disk; half a claim would be in everybody's way
            path.unlink()
            os.close(fd)
            raise LaunchError(
                f"the GPUs cannot be claimed in {self._directory}: {error}"
            ) from error
        return Claim(path, fd)


@contextlib.contextmanager
def ledger() -> Iterator[Ledger]:
    """The claims of those who live; what the dead have left is removed.

    Raises:
      LaunchError: there can be no directory for them that is ours alone.
    """
    directory = _directory()
    with _alone(directory / "mutex"):
        living = [one for path in sorted(directory.glob("*.json")) for one in _read(path)]
        outer = os.environ.get(OUTER, "").split(":")
        yield Ledger(directory, [one for one in living if one.run_id not in outer])


def inside(run_id: str) -> dict[str, str]:
    """What the environment of a run's workers says, so that they may launch programs within its claim."""
    outer = [name for name in os.environ.get(OUTER, "").split(":") if name and name != run_id]
    return {OUTER: ":".join([*outer, run_id])}


def _directory() -> Path:
    chosen = os.environ.get("LAUNCHPAD_CLAIMS_DIR")
    path = Path(chosen).absolute() if chosen else Path(f"/tmp/launchpad-{os.getuid()}-claims")
    with contextlib.suppress(OSError):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not bases.is_private(path):
        raise LaunchError(
            f"no directory for claims on GPUs and CPUs: {path} must be yours alone (mode 0700). Remove it, or"
            " set LAUNCHPAD_CLAIMS_DIR to one that all of your programs use."
        )
    return path


@contextlib.contextmanager
def _alone(mutex: Path) -> Iterator[None]:
    fd = os.open(mutex, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(fd, mutex)
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)  # also for a child that was forked meanwhile
        os.close(fd)


def _lock(fd: int, mutex: Path) -> None:
    deadline = time.monotonic() + _MUTEX_S
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                text = f"for {_MUTEX_S:.0f} s another launch has been choosing its GPUs and CPUs: who has"
                raise LaunchError(f"{text} locked {mutex}? It may be stopped (Ctrl-Z).") from None
            time.sleep(0.005)


def _read(path: Path) -> Iterator[Holding]:
    """The claim in a file; none, and no file any more, if nobody locks it."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError:
        yield Holding(**json.loads(path.read_bytes()))
    finally:
        os.close(fd)
