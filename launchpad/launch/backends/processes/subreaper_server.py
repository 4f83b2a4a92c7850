"""The subreaper server: a process that forks the subreapers of all workers of a node.

    node process ══ requests, exits ══ subreaper server ──┬── subreaper ── forkserver ── worker
                                                          └── subreaper ── forkserver ── worker

On a node, each worker has a forkserver of its own. The server has imported what forkservers need, and has a
single thread. So each of them costs two forks, and no new interpreter, which would take 0.2 s of a CPU.

The server ends when its connection with the node process does. Subreapers watch the server as they would
watch the launcher, so they end their workers then.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import select
import signal
import socket
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from launchpad.launch.backends.processes import os_process, subreaper

_LENGTH_BYTES = 4
_MOST_FDS = 253
"""The most descriptors that Linux sends with one message."""


class _Request(NamedTuple):
    """A subreaper to become, in the server's copy."""

    lifeline: int
    file: int


class _ServerLoop:
    """The server's loop and its state."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._pids: dict[int, int] = {}
        # The read end becomes readable when a child ends.
        self._sigchld, self._wakeup = os.pipe()
        os.set_blocking(self._sigchld, False)
        os.set_blocking(self._wakeup, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self._wakeup, warn_on_full_buffer=False)

    def serve(self) -> _Request | None:
        """Serve until the node process is gone. In a process that this forks, return what to become."""
        poll = select.poll()
        for fd in (self._control.fileno(), self._sigchld):
            poll.register(fd, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._sigchld in ready:
                self._reap()
            if self._control.fileno() not in ready:
                continue
            message, fds = receive(self._control)
            if message is None:
                return None
            if "signal" in message:
                pid = self._pids.get(message["signal"])
                if pid is not None:
                    os.kill(pid, message["sig"])
                continue
            try:
                for module in message["modules"]:
                    importlib.import_module(module)
                pid = os.fork()
            except Exception:
                os.write(fds[-1], traceback.format_exc().encode())
                self._say_ended(message["fork"], 1)
                pid = -1
            if pid == 0:
                return self._prepare(message, fds)
            for fd in fds:
                os.close(fd)
            if pid > 0:
                self._pids[message["fork"]] = pid

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._sigchld, 4096)
        for number, pid in list(self._pids.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._pids[number]
                self._say_ended(number, os.waitstatus_to_exitcode(status))

    def _say_ended(self, number: int, code: int) -> None:
        with contextlib.suppress(OSError):  # the node process is gone, as the next read says too
            send(self._control, {"ended": number, "code": code})

    def _prepare(self, message: Any, fds: Sequence[int]) -> _Request:
        """Give this copy a session, and what it inherits, at the numbers of the node process."""
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        numbers = [*message["arguments"], *message["inherited"]]
        # Above all of these numbers first, since one of them may be that of another descriptor here.
        above = max([2, *numbers]) + 1
        copies = [fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in fds]
        os.dup2(copies[-1], 1)
        os.dup2(copies[-1], 2)
        self._control.detach()
        os_process.close_all_but(set(copies))
        for copy, number in zip(copies, numbers, strict=False):
            os.dup2(copy, number)
        os_process.close_all_but(set(numbers))
        return _Request(*message["arguments"])


def main(control: int) -> NoReturn:
    """Run the server's process, and in its forks those of the subreapers."""
    # What subreapers and forkservers need. The node process imports this file too, and doesn't need them.
    import shutil  # noqa: F401

    from launchpad.launch.backends.processes import forkserver  # noqa: F401

    os_process.ignore_terminal()
    os_process.name_process("subreapers")
    pid = os.getpid()
    try:
        request = _ServerLoop(socket.socket(fileno=control)).serve()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    if request is None:
        os._exit(0)
    subreaper.main(request.lifeline, request.file, pid)


def send(control: socket.socket, message: Any, fds: Sequence[int] = ()) -> None:
    """Send a message, and descriptors with it. Only one thread may send at a time."""
    body = json.dumps(message).encode()
    # The descriptors go with the first bytes. These few are never received in two parts.
    socket.send_fds(control, [len(body).to_bytes(_LENGTH_BYTES, "big")], list(fds))
    control.sendall(body)


def receive(control: socket.socket) -> tuple[Any, list[int]]:
    """Return the next message, and its descriptors. The message is None if the other end is gone."""
    try:
        length, fds, _, _ = socket.recv_fds(control, _LENGTH_BYTES, _MOST_FDS)
        body = b""
        n_bytes = int.from_bytes(length, "big")
        while length and len(body) < n_bytes:
            part = control.recv(n_bytes - len(body))
            if not part:
                return None, fds
            body += part
    except OSError:
        return None, []
    return (json.loads(body) if length else None), fds
