"""The start of the forkserver's process, and the launcher's handle of it.

    start ──▶ interpreter ── subreaper ── forkserver imports ── serves ──▶ workers
    launch ── plans, makes the run's directories ── writes the specs ──┘

The forkserver imports while the launch is planned. Its start is the first thing that a launch does, so this
file imports little and doesn't need the plan.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from launchpad.courier import fork
from launchpad.courier.transport import stream_socket
from launchpad.errors import LaunchError
from launchpad.launch.backends.processes import os_process
from launchpad.launch.planning import debugpy_settings
from launchpad.launch.planning.interpreter import HASH_SEED, InterpreterSettings, check_executable

if TYPE_CHECKING:
    from launchpad.launch.backends.processes.subreaper_server_handle import SubreaperServer


class Subreaper(Protocol):
    """A subreaper's process: a `subprocess.Popen`, or one that a subreaper server has forked."""

    @property
    def returncode(self) -> int | Any:
        """The exit status; None while it runs."""

    def send_signal(self, sig: int, /) -> None: ...

    def wait(self) -> int:
        """Wait until it has ended, and return the exit status."""


class ForkserverHandle:
    """A forkserver's process, with its connection and its files.

    Attributes:
        subreaper: The forkserver's parent. It ends with the same exit status as the forkserver.
        control: The connection to the forkserver, which is also its lifeline.
        specs: The file into which `worker_specs` writes the specs of the workers.
        interpreter: The settings of this interpreter that the forkserver and its workers take over.
        is_used: True once a launch starts its workers with it. From then on, the launch ends the forkserver.
    """

    def __init__(
        self,
        subreaper: Subreaper,
        control: socket.socket,
        specs: BinaryIO,
        output: BinaryIO,
        interpreter: InterpreterSettings,
    ) -> None:
        self.subreaper = subreaper
        self.control = control
        self.specs = specs
        self.interpreter = interpreter
        self.is_used = False
        self._output = output
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """Close all descriptors in a forked child of the launcher, or they would hide the launcher's end."""
        for file in (self.control, self.specs, self._output):
            file.close()

    def keep_output(self, log: Path) -> None:
        """Append to the log what the forkserver printed before it opened the log. Call this at its end."""
        with self._output as output, contextlib.suppress(OSError):
            output.seek(0)
            text = output.read()
            if text:
                with log.open("ab") as file:
                    file.write(text)

    def end(self) -> None:
        """End the forkserver before it was sent anything."""
        for file in (self.control, self.specs, self._output):
            file.close()
        self.subreaper.send_signal(os_process.END_FORKSERVER)
        self.subreaper.wait()


def start(
    interpreter: InterpreterSettings | None = None,
    inherited: Sequence[int] = (),
    server: SubreaperServer | None = None,
    modules: Sequence[str] = (),
) -> ForkserverHandle:
    """Start a forkserver, and don't wait until it runs.

    Args:
        interpreter: The interpreter settings of the launching script, if that is on another host.
        inherited: Descriptors that all processes of the launch keep.
        server: The server that forks it; None for a new interpreter.
        modules: Modules that the server imports first.

    Raises:
        LaunchError: the forkserver could not be started.
    """
    check_executable("the workers' forkserver")
    if interpreter is None:
        interpreter = InterpreterSettings.here()
    try:
        with contextlib.ExitStack() as undo:
            specs = undo.enter_context(os_process.anonymous_file("launchpad-specs"))
            output = undo.enter_context(os_process.anonymous_file("launchpad-output"))
            ours, theirs = map(undo.enter_context, stream_socket.blocking_pair())
            with theirs:
                fds = theirs.fileno(), specs.fileno()
                process: Subreaper
                if server is None:
                    process = _start_interpreter(interpreter, fds, output, inherited)
                else:
                    process = server.fork(interpreter, modules, *fds, output.fileno(), inherited)
            undo.pop_all()
            return ForkserverHandle(process, ours, specs, output, interpreter)
    except OSError as error:
        raise not_started(error) from error


def _start_interpreter(
    interpreter: InterpreterSettings,
    fds: tuple[int, int],
    output: BinaryIO,
    inherited: Sequence[int],
) -> Subreaper:
    """Start an interpreter that becomes the subreaper. `fds` are its lifeline and the file of specs."""
    with debugpy_settings.unnoticed():
        return subprocess.Popen(
            os_process.python_command("subreaper:main", *fds, os.getpid(), flags=interpreter.flags),
            env={**os.environ, HASH_SEED: interpreter.hash_seed},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(*fds, *inherited),
            start_new_session=True,
        )


def not_started(error: Exception) -> LaunchError:
    """Return the error that says why there is no forkserver."""
    from launchpad.launch.backends.processes import exit_status

    why = "; ".join(filter(None, (str(error), exit_status.limit_behind(error))))
    return LaunchError(f"the workers' forkserver could not be started: {why}")
