"""The node process's handle of its subreaper server, and of the subreapers that the server forks."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from launchpad.courier.own_threads import OwnThread
from launchpad.launch.backends.processes import os_process, subreaper_server
from launchpad.launch.planning import debugpy_settings
from launchpad.launch.planning.interpreter import HASH_SEED, InterpreterSettings

_MOST_BUSY_S = 5.0
_AGAIN_S = 0.02

_LOST = -signal.SIGKILL
"""The exit status of subreapers whose server is gone: they kill all that is below them."""


class ServedSubreaper:
    """A subreaper that the server has forked, or is about to fork.

    Attributes:
        returncode: The exit status, negative for a signal; None while it runs.
    """

    def __init__(self, send_signal: Callable[[int], None]) -> None:
        self.returncode: int | None = None
        self.send_signal = send_signal
        self._has_ended = threading.Event()

    def wait(self) -> int:
        """Wait until it has ended, and return `returncode`."""
        self._has_ended.wait()
        assert self.returncode is not None
        return self.returncode

    def on_end(self, code: int) -> None:
        self.returncode = code
        self._has_ended.set()


class SubreaperServer:
    """The node process's handle of its server, which the first `fork` starts. Call it from any thread."""

    def __init__(self) -> None:
        # Held while a request is sent, so that requests don't mix, and while the server starts or is lost.
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._children: dict[int, ServedSubreaper] = {}
        self._n_started = 0

    def fork(
        self,
        interpreter: InterpreterSettings,
        modules: Sequence[str],
        lifeline: int,
        file: int,
        output: int,
        inherited: Sequence[int],
    ) -> ServedSubreaper:
        """Have the server fork a subreaper, and don't wait for it.

        Args:
            interpreter: The settings for the server's interpreter. They are the same in all calls.
            modules: Modules that the forkserver will import.
            lifeline, file: See `subreaper.main`.
            output: The descriptor for what the subreaper and the forkserver print.
            inherited: Descriptors that the workers keep. They have the same numbers there.

        Raises:
            OSError: the server could not be started, or is gone.
        """
        with self._lock:
            number = self._n_started
            self._n_started += 1
            child = ServedSubreaper(lambda sig: self._send_signal(number, sig))
            control = self._control or self._start(interpreter)
            self._children[number] = child
            request = {
                "fork": number,
                "modules": list(modules),
                "arguments": [lifeline, file],
                "inherited": list(inherited),
            }
            try:
                _send(control, request, [lifeline, file, *inherited, output])
            except OSError:
                self._children.pop(number, None)
                raise
        return child

    def close(self) -> None:
        """End the server, and all subreapers that still run."""
        with self._lock:
            if self._control is not None:
                self._control.shutdown(socket.SHUT_RDWR)

    def _start(self, interpreter: InterpreterSettings) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs, debugpy_settings.unnoticed():
            process = subprocess.Popen(
                os_process.python_command(
                    "subreaper_server:main", theirs.fileno(), flags=interpreter.flags
                ),
                env={**os.environ, HASH_SEED: interpreter.hash_seed},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._control = ours
        OwnThread(target=self._read, args=(ours, process), name="launchpad-subreapers").start()
        return ours

    def _send_signal(self, number: int, sig: int) -> None:
        with self._lock, contextlib.suppress(OSError):
            if self._control is not None and number in self._children:
                subreaper_server.send(self._control, {"signal": number, "sig": sig})

    def _read(self, control: socket.socket, process: subprocess.Popen[bytes]) -> None:
        """Take note of the ends of subreapers, until the server is gone."""
        try:
            while True:
                message, _ = subreaper_server.receive(control)
                if message is None:
                    break
                with self._lock:
                    child = self._children.pop(message["ended"], None)
                if child is not None:
                    child.on_end(message["code"])
        finally:
            with self._lock:
                self._control = None
                children = self._children
                self._children = {}
            control.close()
            process.wait()
            for child in children.values():
                child.on_end(_LOST)


def _send(control: socket.socket, request: Mapping[str, Any], fds: Sequence[int]) -> None:
    """Send a request. The kernel limits the descriptors that the server has not received yet."""
    deadline = time.monotonic() + _MOST_BUSY_S
    while True:
        try:
            subreaper_server.send(control, request, fds)
            return
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS or time.monotonic() > deadline:
                raise
        time.sleep(_AGAIN_S)  # the server still imports
