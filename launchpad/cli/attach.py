"""The command `attach`, which connects this terminal to a debugger in a worker."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from launchpad.cli import runs
from launchpad.cli.command import WORKER, CommandError, argument, command, run_argument
from launchpad.courier import formatting
from launchpad.launch.rundir.record import RunRecord
from launchpad.launch.worker.debug_terminal import ACCEPTED, AWAITS_LINE, CTRL_C

_CONNECTS_S = 10.0
_STOPS_S = 3.0
_LOOK_S = 0.2
_PAUSE_S = 0.05
_END_S = 2.0
"""Seconds to wait until a launcher knows that a worker has ended."""

_LEAVES = ("q", "quit", "exit", "EOF")


@command(
    run_argument(),
    WORKER,
    argument(
        "--thread",
        metavar="NAME",
        default="",
        help="another thread than the one that runs its run()",
    ),
)
def attach(options: argparse.Namespace) -> None:
    """Open pdb in a worker that runs, or that has failed and waits for it (`--lp_pdb`).

    `q` or Ctrl-D leaves it, and it goes on. After `c`, Ctrl-C stops it again; twice, it is left.
    """
    run = runs.find(options.run)
    worker = options.worker
    if runs.is_detached(run):
        raise CommandError(f"{run.run_id} was launched detached: no terminal reaches its workers")
    token = os.urandom(32)
    with runs.connected(run) as client, _listening(Path(run.runtime)) as (listener, path):
        row = runs.status_of(client, run, worker)
        if row["state"] not in runs.ALIVE:
            raise CommandError(
                f"{worker} of {run.run_id} does not run now: {row['state']}. One that fails waits for this"
                " command if its program is launched with --lp_pdb"
            )
        client.attach(worker, str(path), token, options.thread)
        connection = _accepted(listener, token, worker, lambda: _end_of(client, run, row))
    with connection:
        attempt = f"attempt {row['attempt']}" + (f", pid {row['pid']}" if row["pid"] else "")
        print(f"{worker} of {run.run_id} ({attempt}); `q` leaves it, and it goes on")
        conversation = _Conversation(connection, worker)
        conversation.hold()
    if not conversation.was_left:
        _print_end(run, row)


def _end_of(client: Any, run: RunRecord, before: Mapping[str, Any]) -> str:
    """Return a line that says how a worker's attempt ended. It is empty while the attempt runs.

    Args:
        before: The worker's status while the attempt ran.
    """
    worker = before["worker"]
    row = runs.status_of(client, run, worker)
    if row["attempt"] == before["attempt"] and row["state"] in runs.ALIVE:
        return ""
    cause = f": {row['cause']}" if row["cause"] else ""
    return f"attempt {before['attempt']} of {worker} has ended; it is now {row['state']}{cause}"


def _print_end(run: RunRecord, before: Mapping[str, Any]) -> None:
    """Print how a worker ended after it left its debugger by itself. Wait until its launcher knows this."""
    deadline = time.monotonic() + _END_S
    try:
        with runs.connected(run) as client:
            while True:
                end = _end_of(client, run, before)
                if end or time.monotonic() >= deadline:
                    break
                time.sleep(_PAUSE_S)
    except CommandError as error:
        end = str(error)
    print(formatting.plain(end) or f"{before['worker']} has closed the connection, and goes on")


@contextlib.contextmanager
def _listening(runtime: Path) -> Iterator[tuple[socket.socket, Path]]:
    """Listen for one connection. Yield the listening socket and its path."""
    path = runtime / f"a-{os.urandom(4).hex()}.socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        try:
            listener.listen(1)
            yield listener, path
        finally:
            path.unlink(missing_ok=True)


def _accepted(
    listener: socket.socket, token: bytes, worker: str, end_of_worker: Callable[[], str]
) -> socket.socket:
    """Wait for the worker's connection. Raise CommandError if it doesn't come, or if the worker refuses."""
    deadline = time.monotonic() + _CONNECTS_S
    while not select.select([listener], [], [], _LOOK_S)[0]:
        end = end_of_worker()
        if end:
            raise CommandError(end)
        if time.monotonic() > deadline:
            raise CommandError(
                f"{worker} has not answered within {_CONNECTS_S:g} s: it has just begun, or its process is"
                " stuck; see `launchpad stacks`"
            )
    connection, _ = listener.accept()
    connection.settimeout(_CONNECTS_S)
    token_received = connection.recv(len(token), socket.MSG_WAITALL)
    answer = connection.recv(1)
    if token_received == token and answer == ACCEPTED:
        connection.settimeout(None)
        return connection
    with connection:
        reason = connection.recv(1 << 16, socket.MSG_WAITALL).decode(errors="replace")
    if token_received != token:
        raise CommandError("what has connected is not the worker")
    raise CommandError(reason)


class _Conversation:
    """A conversation with pdb. A thread prints the worker's output; the main thread reads the user's input.

    The main thread reads a line only when the worker waits for one, so that the user can edit the line.
    """

    def __init__(self, connection: socket.socket, worker: str) -> None:
        self._connection = connection
        self._worker = worker
        # It is notified when the worker waits for a line, and when the conversation is over.
        self._changed = threading.Condition()
        self._prompt: str | None = None
        self._is_over = False
        self._has_interrupted = False
        self._is_typing = False
        # True if the user left the debugger.
        self.was_left = False

    def hold(self) -> None:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - input() uses it

        printer = threading.Thread(target=self._show, name="launchpad-attach", daemon=True)
        printer.start()
        hint = f"({self._worker} goes on until it runs Python code; Ctrl-C twice gives up)"
        try:
            while not self._is_over:
                try:
                    prompt = self._next_prompt(hint)
                    if prompt is not None:
                        self._answer(prompt)
                        hint = ""
                except KeyboardInterrupt:
                    if self._is_over or self._has_interrupted:
                        self.was_left = not self._is_over
                        break
                    self._has_interrupted = True
                    self._send(CTRL_C)
        finally:
            with contextlib.suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(KeyboardInterrupt):
                printer.join()

    def _next_prompt(self, hint: str) -> str | None:
        """Wait for the worker's prompt, and return it. Return None if the conversation is over."""
        with self._changed:
            if hint and not self._changed.wait_for(self._is_asked, _STOPS_S):
                print(hint, flush=True)
            self._changed.wait_for(self._is_asked)
            prompt = self._prompt
            self._prompt = None
            return prompt

    def _is_asked(self) -> bool:
        return self._is_over or self._prompt is not None

    def _answer(self, prompt: str) -> None:
        """Read a line from the user, and send it. After a Ctrl-C, read another line."""
        while not self._is_over:
            self._is_typing = True
            try:
                line = input(prompt)
            except EOFError:
                print()
                line = "q"
            except KeyboardInterrupt:
                print()
                continue
            finally:
                self._is_typing = False
            self._has_interrupted = False
            self.was_left = line.strip() in _LEAVES
            self._send(line.encode(errors="replace") + b"\n")
            return

    def _send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._connection.sendall(data)

    def _show(self) -> None:
        """Print the worker's output, but not the line of a prompt, because `input` prints it."""
        text = b""
        while True:
            data = self._received()
            if not data:
                break
            *outputs, text = (text + data).split(AWAITS_LINE)
            for output in outputs:
                lines, newline, prompt = output.rpartition(b"\n")
                print((lines + newline).decode(errors="replace"), end="", flush=True)
                with self._changed:
                    self._prompt = prompt.decode(errors="replace")
                    self._changed.notify()
            lines, newline, text = text.rpartition(b"\n")
            print((lines + newline).decode(errors="replace"), end="", flush=True)
        with self._changed:
            self._is_over = True
            self._changed.notify()
        # The main thread waits in input(), which is in C, so only a signal reaches it.
        if self._is_typing:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _received(self) -> bytes:
        try:
            return self._connection.recv(1 << 16)
        except OSError:
            return b""
