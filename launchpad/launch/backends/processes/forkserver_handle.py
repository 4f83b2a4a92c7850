"""The forkserver's process, as a launcher starts it: it imports while the launch is planned.

    start ──▶ interpreter ── subreaper ── forkserver imports ── serves ──▶ workers
    launch ── plans, makes the run's directories ── writes the specs ──┘

Nothing in here knows of the plan, and little is imported: this is the first thing that a launch does.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from launchpad.courier import fork
from launchpad.courier.transport import stream_socket
from launchpad.errors import LaunchError
from launchpad.launch.backends.processes import os_process
from launchpad.launch.planning import debugpy_settings
from launchpad.launch.planning.interpreter import HASH_SEED, InterpreterSettings, check_executable


class ForkserverHandle:
    """It, with what connects it with this process.

    Attributes:
        subreaper: The forkserver's parent; it ends as that does.
        control: The connection to the forkserver, which is also its lifeline.
        specs: The file into which the specs of the workers are to be written, for `worker_specs`.
        interpreter: What it has taken over from this interpreter, and its workers will.
        is_used: Whether workers are started by it, and end it.
    """

    def __init__(
        self,
        subreaper: subprocess.Popen[bytes],
        control: socket.socket,
        specs: BinaryIO,
        output: BinaryIO,
        interpreter: InterpreterSettings,
    ) -> None:
        self.subreaper, self.control, self.specs = subreaper, control, specs
        self.interpreter = interpreter
        self.is_used = False
        self._output = output
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """For a forked child of the launcher: the forkserver must see that the launcher has ended."""
        for each in (self.control, self.specs, self._output):
            each.close()

    def keep_output(self, log: Path) -> None:
        """Appends to its log what it has printed before it opened that; called when it has ended."""
        with self._output as output, contextlib.suppress(OSError):
            output.seek(0)
            if text := output.read():
                with log.open("ab") as file:
                    file.write(text)

    def end(self) -> None:
        """Ends it, before it has been sent anything."""
        for each in (self.control, self.specs, self._output):
            each.close()
        self.subreaper.terminate()
        self.subreaper.wait()


def start(
    interpreter: InterpreterSettings | None = None, inherited: Sequence[int] = ()
) -> ForkserverHandle:
    """Starts it, and does not wait until it runs.

    Args:
        interpreter: That of the launching script, if that is on another host.
        inherited: Descriptors that all its processes keep.

    Raises:
        LaunchError: it could not be started.
    """
    check_executable("the workers' forkserver")
    if interpreter is None:
        interpreter = InterpreterSettings.here()
    try:
        with contextlib.ExitStack() as undo:
            specs = undo.enter_context(os_process.anonymous_file("launchpad-specs"))
            output = undo.enter_context(os_process.anonymous_file("launchpad-output"))
            ours, theirs = map(undo.enter_context, stream_socket.blocking_pair())
            with theirs, debugpy_settings.unnoticed():
                kept = theirs.fileno(), specs.fileno()
                process = subprocess.Popen(
                    os_process.python_command(
                        "subreaper:main", *kept, os.getpid(), flags=interpreter.flags
                    ),
                    env={**os.environ, HASH_SEED: interpreter.hash_seed},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(*kept, *inherited),
                    start_new_session=True,
                )
            undo.pop_all()
            return ForkserverHandle(process, ours, specs, output, interpreter)
    except OSError as error:
        raise not_started(error) from error


def not_started(error: Exception) -> LaunchError:
    """Why there is no forkserver."""
    from launchpad.launch.backends.processes import exit_status

    why = "; ".join(filter(None, (str(error), exit_status.limit_behind(error))))
    return LaunchError(f"the workers' forkserver could not be started: {why}")
