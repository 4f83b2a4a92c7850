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
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, cast

from launchpad.courier import keyring
from launchpad.launch import flag_values
from launchpad.launch.logs.files import LogFiles
from launchpad.launch.logs.rotation import Rotation
from launchpad.launch.plan import LaunchPlan, WorkerPlan

if TYPE_CHECKING:
    from launchpad.launch.run_directory import RunDirectory


@dataclass(frozen=True)
class Briefing:
    """What workers are born with.

    Attributes:
      workers: Name → plan, without its payload.
      payloads: Name → where its payload begins, counted from the end of the index, and its length.
      scope: The prefix of this run's addresses, which `token` opens.
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
    scope: str
    token: bytes


def create() -> int:
    """The descriptor of an empty file that nobody else can open."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("launchpad-briefing", os.MFD_CLOEXEC)
    import tempfile

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def write(fd: int, plan: LaunchPlan, run: RunDirectory) -> int:
    """Writes the briefing of a launch; the length of its index."""
    index = pickle.dumps(_briefing(plan, run), protocol=5)
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


def _briefing(plan: LaunchPlan, run: RunDirectory) -> Briefing:
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
        states={name: str(run.state(name)) for name in names},
        stacks={name: str(run.stacks(name)) for name in names},
        argv=tuple(sys.argv),
        flags=flag_values.capture(sys.argv[0]),
        scope=run.scope,
        token=keyring.find(run.scope),
    )


def _mapped(fd: int, offset: int, length: int) -> memoryview:
    """A read-only view of a part of the file; its pages are shared with everybody who looks at them."""
    if not length:
        return memoryview(b"")
    slack = offset % mmap.ALLOCATIONGRANULARITY
    pages = mmap.mmap(fd, length + slack, offset=offset - slack, access=mmap.ACCESS_READ)
    return memoryview(pages)[slack:]
