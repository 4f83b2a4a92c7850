"""The first process of a worker's container: it forks the worker, and talks to the launcher for it.

    launcher ◀── log, termination message ── pod ── fork ──▶ worker
             ─── SIGTERM, annotation ──────▶

The worker is a process of its own, as in `local_mp`. So it can be killed like any other, and its parent can
report how it ended, send its state and write its stacks. When the worker has ended, the container ends, too.
Its exit code says whether the worker failed.

The container's first process is the forkserver itself. Since it forks, it has only one thread. Everything
that it waits for is in the selector of `ForkServer`, and between the turns of that loop it reads the log and
the commands. There is no subreaper process. If this process is killed, the worker ends itself, and everything
else ends with the container.

Readiness is an open port, which a kubelet probes, and not gRPC's health check or a command. Only clusters
from 1.24 on have that health check, and the image would need grpcio. With a command, each probe would be one
more process in the container, and the image would need the command.

The launcher's commands are in a file, which the cluster makes from an annotation.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import socket
import sys
import tempfile
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from launchpad import outcome
from launchpad.courier import formatting
from launchpad.launch.backends.kubernetes import pod_messages
from launchpad.launch.backends.kubernetes.manifests.names import (
    MOUNTED,
    READY_PORT,
    STATE,
    WRITABLE,
    grace_s,
    state_places,
)
from launchpad.launch.backends.kubernetes.pod_inputs import archives, pod_input
from launchpad.launch.backends.kubernetes.pod_inputs.pod_input import RunConfig
from launchpad.launch.backends.kubernetes.pod_messages import PodCommands, Stacks
from launchpad.launch.backends.processes import (
    exit_status,
    os_process,
    worker_process,
    worker_specs,
)
from launchpad.launch.backends.processes.backend import ForkedWorkers
from launchpad.launch.backends.processes.forkserver import ForkServer, InChild
from launchpad.launch.backends.processes.messages import SpecsReady
from launchpad.launch.devices.device import VISIBLE
from launchpad.launch.logs.tail import Tail
from launchpad.launch.plan import LaunchPlan, WorkerPlan
from launchpad.launch.rundir.directory import RunDirectory
from launchpad.launch.worker.spec import WorkerSpec
from launchpad.outcome import Outcome
from launchpad.runtime.commands import (
    AddressesChanged,
    AnnounceGone,
    AnnounceWatermarks,
    KillWorker,
    StartWorker,
    StopWorker,
)
from launchpad.runtime.events import Ended, ProcessStarted, Ready, WorkerNote


class ReadinessPort:
    """The port that is open when the worker is ready. Not thread-safe."""

    _listener: socket.socket | None = None

    def open(self) -> None:
        """Open the port until the process ends. Raise OSError if another process has it."""
        if self._listener is None:
            self._listener = socket.create_server(("", READY_PORT))
            self._listener.setblocking(False)

    def answer(self) -> None:
        """Close the connections of probes, so that there is room for the next ones."""
        while self._listener is not None:
            try:
                self._listener.accept()[0].close()
            except OSError:
                return


class CommandFile:
    """The file into which the cluster writes the launcher's commands. It is read when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = (0, 0, 0)
        self._commands = PodCommands()

    def read(self) -> PodCommands:
        """Return the commands. While the file is being replaced, return the commands read before."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            status = os.stat(self._path)
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
            if version != self._version:
                self._commands = pod_messages.parse_commands(self._path.read_text())
                self._version = version
        return self._commands


class Folders(NamedTuple):
    """The folders of a pod.

    Attributes:
        mounted: The folder with its input.
        writable: The folder where it may write.
        state: The folder where its worker leaves its state for the next attempt.
    """

    mounted: Path
    writable: Path
    state: Path


TERMINATION_LOG = Path("/dev/termination-log")

_POLL_S = 0.05


class WorkerPod:
    """One attempt of one worker."""

    def __init__(self, attempt: int, folders: Folders) -> None:
        self._attempt = attempt
        self._folders = folders
        self._command_file = CommandFile(folders.mounted / "orders")
        self._commands = PodCommands()
        self._kill_at: float | None = None
        self._is_terminated = False
        self._is_asked = False
        self._pid = 0
        self._ended: Ended | None = None
        self._readiness = ReadinessPort()

    def run(self) -> Outcome:
        """Run the worker to its end, and return its outcome.

        Raises:
            InChild: this is the forked process that becomes the worker.
        """
        # Otherwise the forked process would print the rest of the buffer again.
        sys.stdout.flush()
        os_process.ignore_terminal()
        os_process.become_subreaper()
        # An image may choose the signal that stops its containers.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop_signal)
        mounted = self._folders.mounted
        config = pickle.loads((mounted / pod_input.SHARED).read_bytes())
        self._unpack()
        endpoints = self._make_forkserver(
            config, pickle.loads(pod_input.unpacked(mounted, "worker"))
        )
        self._workers.execute(StartWorker(self._name, self._attempt))
        # Send this after the start, because the forkserver passes it on only to a worker that runs.
        self._workers.send(AddressesChanged(endpoints))
        while self._ended is None:
            self._print_log()
            self._apply_commands()
            self._readiness.answer()
            self._forkserver.rotate(_POLL_S)
        while self._tail.has_more():
            self._print_log()
        remainder = self._tail.remainder()
        if remainder:
            _print([pod_messages.escaped(remainder) + b"\n"])
        if self._commands.carries:
            self._send_state()
        _print([pod_messages.written(self._ended)])
        return self._ended.outcome

    def _unpack(self) -> None:
        """Unpack the project, and the state of the previous attempt unless a volume has it already."""
        mounted, writable, own_state = self._folders
        code = pod_input.unpacked(mounted, "code")
        if code:
            folder = writable / "code"
            with zipfile.ZipFile(io.BytesIO(code)) as packed:
                packed.extractall(folder)
            sys.path.insert(0, str(folder))
        state = pod_input.unpacked(mounted, "state")
        if state and archives.is_empty(own_state):
            archives.unpack(state, own_state)

    def _make_forkserver(self, config: RunConfig, worker: WorkerPlan) -> dict[str, str]:
        """Prepare the fork of the worker, and keep no reference to its payload.

        Returns:
            Address name → endpoint, for the addresses of other workers.
        """
        self._name = worker.name
        self._grace_s = grace_s(worker, config.grace_s)
        # Servers listen on all interfaces.
        endpoints: dict[str, str] = {}
        for name, endpoint in worker.endpoints.items():
            port = endpoint.rpartition(":")[2]
            endpoints[name] = f"tcp:0.0.0.0:{port}" if endpoint.startswith("tcp:") else endpoint
        # The device plugin may name the GPUs. If it doesn't, number them, because this container has no
        # others.
        gpus = tuple(str(i) for i in range(int(worker.resources.gpus)))
        visible = os.environ.get(VISIBLE)
        if worker.resources.gpus and visible:
            gpus = tuple(visible.split(","))
        plan = replace(worker, endpoints=endpoints, gpus=gpus, cpus=())
        run = RunDirectory.create(config.program, endpoints)
        run.make_runtime()
        self._tail = Tail(run.log(self._name, self._attempt))
        places = state_places(worker, config.state, str(self._folders.state), config.run_id)
        with os_process.anonymous_file("launchpad-specs") as specs:
            file = os.dup(specs.fileno())
        self._forkserver = ForkServer(file)
        self._workers = ForkedWorkers(self._forkserver.execute_in_order, self._on, run.stacks)
        self._forkserver.say = self._workers.on
        spec = WorkerSpec(
            plan,
            config.program,
            config.launch_type,
            endpoints,
            places,
            can_move=True,
            known_as=worker.endpoints,
        )
        # This forkserver needn't import modules of launchpad before the fork, because it forks only once.
        launch = LaunchPlan(config.program, config.launch_type, (plan,))
        keys = config.keys.entries()
        length = worker_specs.write(file, launch, [spec], run, config.origin, keys)
        self._workers.send(SpecsReady(length))
        return {a: e for a, e in config.places.items() if a not in worker.endpoints}

    def _send_state(self) -> None:
        """Send the state directory to the launcher, for the next attempt, if there is one."""
        try:
            state = self._folders.state
            size = sum(path.lstat().st_size for path in state.rglob("*"))
            content = archives.packed(state) if size <= archives.MOST_BYTES else b""
        except OSError as error:
            self._note(f"its state directory cannot be handed on to its next attempt: {error}")
            return
        if size > archives.MOST_BYTES:
            self._note(
                f"its state directory has {formatting.size(size)}, and no more than"
                f" {formatting.size(archives.MOST_BYTES)} are sent to its next attempt;"
                f" mount a volume at {STATE} by pod_patch"
            )
        _print(list(map(pod_messages.written, pod_messages.chunks(pod_messages.STATE, content))))

    def _note(self, text: str) -> None:
        _print([pod_messages.written(WorkerNote(self._name, text))])

    def _on_stop_signal(self, number: int, frame: object) -> None:
        # A signal may come at any moment, so do no more than this. The selector wakes.
        self._is_terminated = True

    def _on(self, report: Any) -> None:
        if isinstance(report, Ended):
            self._ended = report
        elif isinstance(report, ProcessStarted):
            # Don't send this on, because the pid means nothing outside the pod.
            self._pid = report.pid
        else:
            if isinstance(report, Ready):
                try:
                    self._readiness.open()
                except OSError as error:
                    self._note(f"the cluster will not call it ready: port {READY_PORT}: {error}")
            is_large = isinstance(report, pod_messages.LargeEvent)
            for message in pod_messages.event_chunks(report) if is_large else [report]:
                _print([pod_messages.written(message)])

    def _apply_commands(self) -> None:
        """Execute the launcher's commands, and kill the worker if its time to stop is over."""
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            self._kill_at = None
            self._workers.execute(KillWorker(self._name))
        commands = self._command_file.read()
        before = self._commands
        # If the worker has not started, keep the command to crash it for later.
        self._commands = commands if self._pid else replace(commands, crash=False)
        changed = {
            worker: commands.gone.get(worker, "")
            for worker in {*commands.gone, *before.gone}
            if commands.gone.get(worker, "") != before.gone.get(worker, "")
        }
        if changed:
            self._workers.execute(AnnounceGone(changed))
        if commands.watermarks != before.watermarks:
            self._workers.execute(AnnounceWatermarks(self._name, commands.watermarks))
        if (self._is_terminated or commands.restarts) and not self._is_asked:
            self._is_asked = True
            self._workers.execute(StopWorker(self._name, commands.restarts))
            self._kill_at = time.monotonic() + self._grace_s
        if commands.kill and not before.kill:
            self._workers.execute(KillWorker(self._name))
        if commands.crash and not before.crash and self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        if commands.stacks > before.stacks:
            stacks = Stacks(commands.stacks, self._workers.stacks(self._name))
            _print([pod_messages.written(stacks)])

    def _print_log(self) -> None:
        for lines in iter(self._tail.lines, []):
            _print([pod_messages.escaped(line) + b"\n" for line in lines])


def main(attempt: int) -> NoReturn:
    """Run one attempt, write its termination message, and exit."""
    mounted = Path(MOUNTED)
    writable = Path(WRITABLE)
    use_writable_dirs(writable)
    end: Outcome | None = None
    inheritance: Any = None
    cause = ""
    hint = ""
    try:
        cause = pod_input.mismatch(mounted)
        if cause:
            hint = pod_input.VERSION_HINT
        else:
            end = WorkerPod(attempt, Folders(mounted, writable, Path(STATE))).run()
    except InChild as in_child:
        inheritance = in_child.args
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        hint = exit_status.limit_behind(error)
    if cause:
        host = socket.gethostname()
        end = Outcome("", outcome.FAILED, "start", attempt, cause, hint=hint, host=host)
        _print([pod_messages.written(Ended(end))])
    if end is not None:
        with contextlib.suppress(OSError):
            TERMINATION_LOG.write_bytes(pod_messages.termination_message(end))
        os_process.end_children()
        sys.stdout.flush()
        os._exit(outcome.exit_status(end) if end.is_failure else 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # The worker may have another $TMPDIR.
    tempfile.tempdir = None
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    worker_process.become_worker(*inheritance)


def use_writable_dirs(writable: Path) -> None:
    """Set $TMPDIR, and $HOME if that is read-only, to a folder that is writable."""
    os.environ["TMPDIR"] = str(writable)
    if not os.access(os.path.expanduser("~"), os.W_OK):
        os.environ["HOME"] = str(writable)


def _print(lines: list[bytes]) -> None:
    with contextlib.suppress(OSError):
        unwritten = memoryview(b"".join(lines))
        while unwritten:
            unwritten = unwritten[os.write(1, unwritten) :]
