"""Specs: everything that the processes of one launch need to know, in one file without a name.

    ┌ the run's directory ┬ index (pickled LaunchSpec) ┬ payload of worker 0 ┬ … ┬ large buffers, each once
    0                     4096              4096 + index_length                  a multiple of the page size

The launcher writes the file while the forkserver starts. The forkserver reads the index once, before it
forks, so every worker inherits it. A worker maps its own payload, however large, without the forkserver's
help. It also maps the bytes of large arrays, and shares their pages with the other workers until it writes to
them. The subreaper removes the run's directory.
"""

from __future__ import annotations

import mmap
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, cast

from launchpad.courier.light_dataclass import dataclass
from launchpad.launch.backends.launcher_info import KeyringEntry, LauncherInfo
from launchpad.launch.backends.processes import os_process
from launchpad.launch.devices import cpus
from launchpad.launch.large_buffers import BufferInFile, LargeBuffer, Openable, aligned
from launchpad.launch.logs.log_files import LogFiles
from launchpad.launch.logs.rotation import Rotation
from launchpad.launch.plan import LaunchPlan
from launchpad.launch.worker.spec import WorkerSpec

if TYPE_CHECKING:
    from launchpad.launch.rundir.directory import RunDirectory


@dataclass(frozen=True)
class PayloadPlace:
    """The place of a worker's payload in the file.

    Attributes:
        offset: The byte where it begins, counted from the end of the index.
        buffers: For each buffer of the payload, the byte where it begins, counted from the file's first
            buffer, and its length; or its place in a file that the process has inherited.
    """

    offset: int
    nbytes: int
    buffers: Sequence[tuple[int, int] | BufferInFile]


@dataclass(frozen=True)
class LaunchSpec:
    """The index: everything that the processes of a launch need to know, except payloads.

    Attributes:
        workers: Name → spec. The plan in it lacks the payload.
        payloads: Name → the place of its payload.
        launcher: The launching script.
        claim: The descriptors that all processes keep: those that hold the run's GPUs, folder and the like,
            and those of files with large buffers.
        keys: The keys to this run's addresses: prefix, token and credentials.
        modules: Modules of launchpad that the forkserver imports once, before it forks the first worker.
        preload: Modules that the user wants imported likewise.
        preload_threads: The number of threads for OpenMP, which fixes the number when it is loaded.
    """

    workers: Mapping[str, WorkerSpec]
    payloads: Mapping[str, PayloadPlace]
    logs: LogFiles
    rotation: Rotation
    stacks: Mapping[str, str]
    launcher: LauncherInfo
    claim: Sequence[int]
    keys: Sequence[KeyringEntry]
    modules: Sequence[str]
    preload: Sequence[str]
    preload_threads: int


def write(
    fd: int,
    plan: LaunchPlan,
    workers: Sequence[WorkerSpec],
    run: RunDirectory,
    launcher: LauncherInfo,
    keys: Sequence[KeyringEntry],
) -> int:
    """Write the specs of a launch, and return the length of their index in bytes.

    Args:
        fd: The descriptor of the file.
        workers: The specs of the plan's workers.
    """
    buffers = [buffer for buffer in plan.large_buffers if buffer.in_file is None]
    sizes = (aligned(buffer.nbytes) for buffer in buffers)
    places = dict(zip(buffers, accumulate(sizes, initial=0), strict=False))
    payloads: dict[str, PayloadPlace] = {}
    end = 0
    for worker in plan.workers:
        of_worker = [
            buffer.in_file or (places[buffer], buffer.nbytes)
            for buffer in worker.payload.buffers
            if isinstance(buffer, LargeBuffer)
        ]
        nbytes = len(worker.payload.stream)
        payloads[worker.name] = PayloadPlace(end, nbytes, of_worker)
        end += nbytes
    threads = (cpus.number_of_threads(w.resources.cpus, len(plan.workers)) for w in plan.workers)
    launch_spec = LaunchSpec(
        workers={spec.plan.name: _with_payload(spec, b"", ()) for spec in workers},
        payloads=payloads,
        logs=run.log_files,
        rotation=run.rotation,
        stacks={worker.name: str(run.stacks(worker.name)) for worker in plan.workers},
        launcher=launcher,
        claim=[*run.claimed(), *plan.buffer_files],
        keys=keys,
        modules=plan.modules,
        preload=plan.preload,
        preload_threads=min(threads, default=1),
    )
    index = pickle.dumps(launch_spec, protocol=5)
    with open(fd, "wb", closefd=False) as file:
        directory = os_process.header_with(str(run.runtime))
        file.writelines((directory, index, *(worker.payload.stream for worker in plan.workers)))
        first_buffer = _first_buffer(len(index), payloads.values())
        for buffer, place in places.items():
            file.seek(first_buffer + place)
            file.write(buffer.memory)
    return len(index)


class SpecFile:
    """The file of specs, as the forkserver and its workers read it.

    Attributes:
        fd: A descriptor of the file, which all these processes keep.
        launch: The index.
    """

    def __init__(self, fd: int, index_length: int) -> None:
        self.fd = fd
        self.index_length = index_length
        index = _mapped(fd, os_process.HEADER_BYTES, index_length)
        self.launch: LaunchSpec = pickle.loads(index)

    def worker(self, name: str) -> WorkerSpec:
        """Return the spec of one worker, its payload mapped from the file."""
        place = self.launch.payloads[name]
        begin = os_process.HEADER_BYTES + self.index_length
        stream = cast(bytes, _mapped(self.fd, begin + place.offset, place.nbytes))
        first_buffer = _first_buffer(self.index_length, self.launch.payloads.values())
        buffers: list[BufferInFile] = []
        for buffer in place.buffers:
            if not isinstance(buffer, BufferInFile):
                offset, length = buffer
                buffer = BufferInFile(self.fd, first_buffer + offset, length)
            buffers.append(buffer)
        return _with_payload(self.launch.workers[name], stream, tuple(buffers))


def _with_payload(spec: WorkerSpec, stream: bytes, buffers: tuple[Openable, ...]) -> WorkerSpec:
    payload = replace(spec.plan.payload, stream=stream, buffers=buffers)
    return replace(spec, plan=replace(spec.plan, payload=payload))


def _first_buffer(index_length: int, payloads: Iterable[PayloadPlace]) -> int:
    """Return the offset in the file at which the first buffer begins."""
    return aligned(os_process.HEADER_BYTES + index_length + sum(place.nbytes for place in payloads))


def _mapped(fd: int, offset: int, length: int) -> memoryview:
    """Return a read-only view of a part of the file. All processes that read it share its pages."""
    if not length:
        return memoryview(b"")
    slack = offset % mmap.ALLOCATIONGRANULARITY
    pages = mmap.mmap(fd, length + slack, offset=offset - slack, access=mmap.ACCESS_READ)
    return memoryview(pages)[slack:]
