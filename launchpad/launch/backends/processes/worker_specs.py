"""Specs: all that the workers of one launch must know, in one file that has no name.

    ┌ the run's directory ┬ index (pickled LaunchSpec) ┬ payload of worker 0 ┬ … ┬ large buffers, each once
    0                     4096              4096 + index_length                  a multiple of the page size

The launcher writes it while the forkserver starts; the forkserver reads the index once, before it forks, so
that every worker inherits it; a worker maps its own payload, however large, without the forkserver's help.
Of large arrays it maps the bytes as its own, and shares them with the other workers until it writes.
The directory is what the subreaper removes.
"""

from __future__ import annotations

import mmap
import pickle
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, cast

from launchpad.courier import keyring
from launchpad.courier.light_dataclass import dataclass
from launchpad.launch.backends.processes import os_process
from launchpad.launch.devices import cpus
from launchpad.launch.large_buffers import BufferInFile, LargeBuffer, aligned
from launchpad.launch.logs.log_files import LogFiles, Rotation
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.launch.planning import absl_flags
from launchpad.launch.planning.interpreter import InterpreterSettings
from launchpad.launch.planning.main_module import MainModule
from launchpad.state.places import StatePlaces

if TYPE_CHECKING:
    from launchpad.courier.security.keyring import Credentials
    from launchpad.launch.rundir.directory import RunDirectory


@dataclass(frozen=True)
class LaunchSpec:
    """What all workers of a launch know.

    Attributes:
        workers: Name → plan, without its payload.
        payloads: Name → where its payload begins, counted from the end of the index, and its length.
        buffers: Name → the buffers of its payload: where each begins, counted from the first one, and its
            length; or its place in a file that the process has inherited.
        main: The launching script's `__main__`.
        claim: The descriptors of what the run holds, GPUs and a folder, say, which all processes keep; and of
            files with large buffers.
        states: Name → where the worker leaves what its next attempt is to find.
        argv, flags: The launching script's, as `absl_flags.capture` gives them.
        interpreter: What workers take over from the script's interpreter.
        keys: What opens this run's addresses: prefix, token and credentials.
        modules: Modules of ours that are imported once, before the first worker is forked.
        preload: Others, which the user has named.
        preload_threads: How many threads OpenMP is to use, where that is fixed when it is loaded.
        can_move: Whether servers may be somewhere else after a restart.
        listens_at: Where servers listen for workers on other hosts: `tcp:10.0.0.5:0`.
        known_as: Address → the name by which others find it, where that is not what its server listens at.
    """

    program: str
    launch_type: str
    endpoints: dict[str, str]
    workers: Mapping[str, WorkerPlan]
    payloads: Mapping[str, tuple[int, int]]
    buffers: Mapping[str, Sequence[tuple[int, int] | BufferInFile]]
    logs: LogFiles
    rotation: Rotation
    states: Mapping[str, StatePlaces]
    stacks: Mapping[str, str]
    argv: Sequence[str]
    flags: bytes
    interpreter: InterpreterSettings
    main: MainModule
    claim: Sequence[int]
    keys: Sequence[tuple[str, bytes, Credentials | None]]
    modules: Sequence[str]
    preload: Sequence[str]
    preload_threads: int
    can_move: bool = False
    listens_at: str = ""
    known_as: Mapping[str, str] = field(default_factory=dict)


def write(fd: int, plan: LaunchPlan, run: RunDirectory, **overrides: Any) -> int:
    """Writes the specs of a launch, and returns the length of their index.

    Args:
        overrides: Fields of the `LaunchSpec` that are not this process's: the launcher is on another host.
    """
    names = [worker.name for worker in plan.workers]
    lengths = [len(worker.payload) for worker in plan.workers]
    offsets = accumulate(lengths, initial=0)
    buffers = [buffer for buffer in plan.large_buffers if buffer.in_file is None]
    sizes = (aligned(buffer.nbytes) for buffer in buffers)
    places = dict(zip(buffers, accumulate(sizes, initial=0), strict=False))
    launch_spec = LaunchSpec(
        program=plan.program,
        launch_type=plan.launch_type,
        endpoints=plan.endpoints,
        workers={worker.name: replace(worker, payload=b"", buffers=()) for worker in plan.workers},
        payloads=dict(zip(names, zip(offsets, lengths, strict=False), strict=True)),
        buffers={
            worker.name: [
                buffer.in_file or (places[buffer], buffer.nbytes)
                for buffer in worker.buffers
                if isinstance(buffer, LargeBuffer)
            ]
            for worker in plan.workers
        },
        logs=run.log_files,
        rotation=run.rotation,
        states={w.name: run.state_places(w.name, w.group) for w in plan.workers},
        stacks={name: str(run.stacks(name)) for name in names},
        argv=tuple(sys.argv),
        flags=absl_flags.capture(sys.argv[0]),
        interpreter=overrides.get("interpreter") or InterpreterSettings.here(),
        main=MainModule.of_script(),
        claim=[*run.claimed(), *plan.buffer_files],
        keys=[(run.scope, keyring.find(run.scope), None)],
        modules=plan.modules,
        preload=plan.preload,
        preload_threads=min(
            (cpus.number_of_threads(w.resources.cpus, len(names)) for w in plan.workers), default=1
        ),
    )
    index = pickle.dumps(replace(launch_spec, **overrides), protocol=5)
    with open(fd, "wb", closefd=False) as file:
        directory = os_process.header_with(str(run.runtime))
        file.writelines((directory, index, *(worker.payload for worker in plan.workers)))
        first_buffer = _first_buffer(len(index), lengths)
        for buffer, place in zip(buffers, places.values(), strict=True):
            file.seek(first_buffer + place)
            file.write(buffer.memory)
    return len(index)


def load(fd: int, index_length: int) -> LaunchSpec:
    """The index."""
    return cast(LaunchSpec, pickle.loads(_mapped(fd, os_process.HEADER_BYTES, index_length)))


def plan_of(fd: int, index_length: int, launch_spec: LaunchSpec, worker: str) -> WorkerPlan:
    """The plan of one worker, its payload mapped from the file."""
    offset, length = launch_spec.payloads[worker]
    begin = os_process.HEADER_BYTES + index_length
    payload = cast(bytes, _mapped(fd, begin + offset, length))
    lengths = [length for _, length in launch_spec.payloads.values()]
    first_buffer = _first_buffer(index_length, lengths)
    buffers = tuple(
        place
        if isinstance(place, BufferInFile)
        else BufferInFile(fd, first_buffer + place[0], place[1])
        for place in launch_spec.buffers[worker]
    )
    return replace(launch_spec.workers[worker], payload=payload, buffers=buffers)


def _first_buffer(index_length: int, payload_lengths: Iterable[int]) -> int:
    """Returns where the first buffer begins in the file."""
    return aligned(os_process.HEADER_BYTES + index_length + sum(payload_lengths))


def _mapped(fd: int, offset: int, length: int) -> memoryview:
    """A read-only view of a part of the file; its pages are shared with all processes that read them."""
    if not length:
        return memoryview(b"")
    slack = offset % mmap.ALLOCATIONGRANULARITY
    pages = mmap.mmap(fd, length + slack, offset=offset - slack, access=mmap.ACCESS_READ)
    return memoryview(pages)[slack:]
