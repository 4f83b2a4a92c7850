"""Briefing: all that the workers of one launch must know, in one file that has no name.

    ┌ index (pickled Briefing) ┬ payload of worker 0 ┬ payload of worker 1 ┬ …
    0                          index_length

The launcher writes it while the host boots; the host reads the index once, before it forks, so that every
worker is born knowing it; a worker maps its own payload, however large, without the host's help.
"""

from __future__ import annotations

import mmap
import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, cast

from launchpad.courier import keyring
from launchpad.launch import flag_values
from launchpad.launch.logs.files import LogFiles
from launchpad.launch.logs.rotation import Rotation
from launchpad.launch.plan import LaunchPlan, WorkerPlan

if TYPE_CHECKING:
    from launchpad.courier.trust.credentials import Credentials
    from launchpad.launch.run_directory import RunDirectory


@dataclass(frozen=True)
class Briefing:
    """What workers are born with.

    Attributes:
      workers: Name → plan, without its payload.
      payloads: Name → where its payload begins, counted from the end of the index, and its length.
      claim: The descriptor of the run's claim on GPUs and CPUs, which everybody keeps; or nothing.
      keys: What opens this run's addresses: prefix, token and credentials.
      abroad: What else there is to know where the launcher is on another host.
    """

    program: str
    launch_type: str
    endpoints: dict[str, str]
    workers: Mapping[str, WorkerPlan]
    payloads: Mapping[str, tuple[int, int]]
    logs: LogFiles
    rotation: Rotation
    states: Mapping[str, str]
    stacks: Mapping[str, str]
    argv: Sequence[str]
    flags: bytes
    claim: Sequence[int]
    keys: Sequence[tuple[str, bytes, Credentials | None]]
    abroad: Abroad | None = None


@dataclass(frozen=True)
class Abroad:
    """What workers must know whose launcher is on another host, and whose servers may move.

    Attributes:
      listens_at: Where servers listen for workers on other hosts: `tcp:10.0.0.5:0`.
      argv, flags: The launching script's, as `flag_values.capture` gives them.
      state: Where the worker may leave what its next attempt is to find.
      known_as: Address → the name by which others find it, where that is not what its server listens at.
    """

    listens_at: str
    token: bytes
    credentials: Credentials
    argv: Sequence[str]
    flags: bytes
    state: str
    known_as: Mapping[str, str] = field(default_factory=dict)

    @property
    def keys(self) -> list[tuple[str, bytes, Credentials | None]]:
        """Whatever a worker talks to by courier belongs to its run, unless it has a key of its own."""
        return [("unix:", self.token, None), ("tcp:", self.token, self.credentials)]


def create() -> int:
    """The descriptor of an empty file that nobody else can open."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("launchpad-briefing", os.MFD_CLOEXEC)
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def write(fd: int, plan: LaunchPlan, run: RunDirectory, abroad: Abroad | None = None) -> int:
    """Writes the briefing of a launch; the length of its index."""
    index = pickle.dumps(_briefing(plan, run, abroad), protocol=5)
    for part in (index, *(worker.payload for worker in plan.workers)):
        left = memoryview(part)
        while left:
            left = left[os.write(fd, left) :]
    return len(index)


def load(fd: int, index_length: int) -> Briefing:
    """The index."""
    briefing = pickle.loads(_mapped(fd, 0, index_length))
    assert isinstance(briefing, Briefing)
    return briefing


def plan_of(fd: int, index_length: int, briefing: Briefing, worker: str) -> WorkerPlan:
    """The plan of one worker, its payload mapped from the file."""
    offset, length = briefing.payloads[worker]
    payload = cast(bytes, _mapped(fd, index_length + offset, length))
    return replace(briefing.workers[worker], payload=payload)


def _briefing(plan: LaunchPlan, run: RunDirectory, abroad: Abroad | None) -> Briefing:
    lengths = [len(worker.payload) for worker in plan.workers]
    offsets = accumulate(lengths, initial=0)
    places = list(zip(offsets, lengths, strict=False))
    names = [worker.name for worker in plan.workers]
    return Briefing(
        program=plan.program,
        launch_type=plan.launch_type,
        endpoints=plan.endpoints,
        workers={worker.name: replace(worker, payload=b"") for worker in plan.workers},
        payloads=dict(zip(names, places, strict=True)),
        logs=run.log_files,
        rotation=run.rotation,
        states={name: abroad.state if abroad else str(run.state(name)) for name in names},
        stacks={name: str(run.stacks(name)) for name in names},
        argv=abroad.argv if abroad else tuple(sys.argv),
        flags=abroad.flags if abroad else flag_values.capture(sys.argv[0]),
        claim=run.claimed(),
        keys=abroad.keys if abroad else [(run.scope, keyring.find(run.scope), None)],
        abroad=abroad,
    )


def _mapped(fd: int, offset: int, length: int) -> memoryview:
    """A read-only view of a part of the file; its pages are shared with everybody who looks at them."""
    if not length:
        return memoryview(b"")
    slack = offset % mmap.ALLOCATIONGRANULARITY
    pages = mmap.mmap(fd, length + slack, offset=offset - slack, access=mmap.ACCESS_READ)
    return memoryview(pages)[slack:]
