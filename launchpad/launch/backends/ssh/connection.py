"""The launcher's end of ssh connections: one event loop in a thread, and one process `ssh` for each host.

    launcher ── stdin of ssh ──▶ sshd ── stdin of bootstrap.py, then of node_process ── workers
             ◀─ stdout ─────────────────┘

There is one connection for each host, because sshd drops some of many that begin at the same time. It is
also the lifeline: when the launcher ends, in whatever way, the host's stdin ends. The other way round, `ssh`
itself notices within 4 s that a host doesn't answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import pickle
import shlex
import shutil
import sys
import threading
import zlib
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launchpad.courier import fork
from launchpad.courier.own_threads import OwnThread
from launchpad.errors import LaunchError
from launchpad.launch.backends import launcher_info
from launchpad.launch.backends.remote import code
from launchpad.launch.backends.remote.node_connection import NodeConnection, NodeGone, NodeReady
from launchpad.launch.backends.ssh import wire
from launchpad.launch.backends.ssh.hosts import Host

_log = logging.getLogger("launchpad.ssh")

_OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=4",
    "ServerAliveInterval=1",
    "ServerAliveCountMax=3",
    # A connection that the user shares with other commands would not be the lifeline of this launch alone.
    "ControlPath=none",
    "ClearAllForwardings=yes",
    "ForwardX11=no",
    "RequestTTY=no",
    "RemoteCommand=none",
)

_HELLO_S = 30.0
"""How long a host may take from its login until its node process runs, without the time of the upload.

When the upload has ended, up to 2 MiB of it may still be on the way to the host.
"""

_UPLOADED_AT_ONCE = 256 << 10
"""The process `ssh` must take each such piece of the upload within `_HELLO_S`."""

_TRIES = 4
_TRY_AGAIN_S = 0.5
"""sshd drops some connections at random if many begin at the same time (MaxStartups)."""

_RETURN_S = 3.0
"""Seconds between two tries to connect again with a host that was lost."""

_END_S = 5.0
_NOT_SSH = 255
"""The exit status of `ssh` if the connection failed; any other one is the status of the remote command."""

_DROPPED = ("kex_exchange_identification", "Connection reset by peer", "Connection closed by")
_ADVICE = (
    (
        "Permission denied",
        "have your public key accepted there: ssh-copy-id; or name a key in ~/.ssh/config",
    ),
    ("Host key verification failed", "log in once by hand and accept the host's key: {command}"),
    ("Could not resolve hostname", "check the name, or give the host an entry in ~/.ssh/config"),
    ("timed out", "is it up, and may this machine reach its ssh port?"),
    ("No route to host", "is it up, and may this machine reach its ssh port?"),
    ("Connection refused", "is an ssh server running there, at this port?"),
)

_BOOTSTRAP = (Path(__file__).parent / "bootstrap.py").read_bytes()
_NEEDS = ("absl", "cloudpickle", "portpicker", "psutil", "rich", "threadpoolctl", "cryptography")


def check_ssh() -> None:
    """Raise LaunchError if this machine has no `ssh`."""
    if shutil.which("ssh") is None:
        raise LaunchError(
            "launch type 'ssh' needs the command `ssh`, which is not on this machine's PATH: install an"
            " OpenSSH client (Debian: apt-get install openssh-client)"
        )


def archive(project: Path) -> bytes:
    """Return an archive of launchpad and of the project for hosts.

    It contains launchpad's compiled modules too, as far as there are any. So the hosts need not compile them.
    It is no tar file, because the thousand files of launchpad take `tarfile` half a second on each host.

    Raises:
        LaunchError: the project is too large; the text lists the largest files.
    """
    files = []
    for path, name in code.files_to_send(project).items():
        compiled = Path("__pycache__", f"{path.stem}.{sys.implementation.cache_tag}.pyc")
        for own_name, own_path in ((name, path), (name.parent / compiled, path.parent / compiled)):
            with contextlib.suppress(FileNotFoundError):
                content = own_path.read_bytes()
                modified = own_path.stat().st_mtime
                files.append((own_name.as_posix(), modified, content))
    return zlib.compress(pickle.dumps(files, protocol=4), 1)


@dataclass(frozen=True)
class Sent:
    """The content of the first message to each host.

    Attributes:
        code: An archive of launchpad and of the project.
        needs_gpus: True if some worker asks for a GPU.
        run_id: The launcher's run.
    """

    code: bytes = field(repr=False)
    needs_gpus: bool
    run_id: str


@dataclass(eq=False)
class Connected:
    """A host that is connected, and the process `ssh` that carries the connection.

    Attributes:
        why_ended: The reason why this side has ended the connection; empty if it hasn't.
    """

    host: Host
    node: NodeConnection
    process: asyncio.subprocess.Process
    why_ended: str = ""

    @property
    def ready(self) -> NodeReady:
        return self.node.ready


class SshConnections:
    """The connections of one launch. Call its methods from any thread.

    Args:
        logs: The folder for what hosts print that no worker has printed.
        on_connected: Called in the loop's thread with each host, as soon as it is connected.
        on_gone: Called in the loop's thread when a connection has ended.
        on_back: Called in the loop's thread when a lost host is connected again.
    """

    def __init__(
        self,
        sent: Sent,
        logs: Path,
        on_connected: Callable[[Connected], object],
        on_gone: Callable[[Connected], object],
        on_back: Callable[[Connected], object],
    ) -> None:
        self._sent = sent
        self._logs = logs
        self._on_connected = on_connected
        self._on_gone = on_gone
        self._on_back = on_back
        self._is_closing = False
        self._serving: set[asyncio.Task[None]] = set()
        self._processes: set[asyncio.subprocess.Process] = set()
        self._loop = asyncio.new_event_loop()
        self._has_ended = threading.Event()
        self._thread = OwnThread(target=self._run, name="launchpad-ssh")
        self._thread.start()
        fork.drop_in_child(self)

    def drop_inherited(self) -> None:
        """Close the hosts' stdin in a forked child of the launcher, or they would outlive the launcher."""
        for process in self._processes:
            if process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.transport.get_extra_info("pipe").close()

    def connect(self, hosts: Sequence[Host]) -> list[Connected]:
        """Connect with all hosts at the same time.

        Raises:
            LaunchError: some hosts can't be used; the text has a line for each.
        """
        futures = [self._submit(self._connect(host)) for host in hosts]
        connected = []
        refusals = []
        for future in futures:
            try:
                connected.append(future.result())
            except LaunchError as error:
                refusals.append(str(error))
        if refusals:
            raise LaunchError("\n  ".join(refusals))
        return connected

    def end(self, connected: Connected, why: str) -> None:
        """End a connection that is up and of no use."""
        self._loop.call_soon_threadsafe(self._end, connected, why)

    def close(self) -> None:
        """End all node processes, and the connections. Waits a few seconds at most."""
        self._submit(self._close()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    # In the event loop.

    def _submit(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    async def _connect(self, host: Host) -> Connected:
        """Connect with a host, and serve the connection until it ends.

        Raises:
            LaunchError: the host can't be used; the text says why, and what to do.
        """
        for tries_left in range(_TRIES - 1, -1, -1):
            # What earlier tries have printed says nothing about this one.
            log = self._log_of(host)
            printed_from = log.stat().st_size if log.exists() else 0
            process = await self._start(host)
            self._processes.add(process)
            try:
                ready = await self._begin(host, process, printed_from)
                connected = Connected(host, NodeConnection(ready), process)
                self._on_connected(connected)
                task = asyncio.create_task(self._serve(connected))
                self._serving.add(task)
                task.add_done_callback(self._serving.discard)
                return connected
            except _Dropped as dropped:
                await self._forget(process)
                if not tries_left:
                    raise LaunchError(str(dropped)) from None
                _log.debug("%s; trying again", dropped)
                await asyncio.sleep(_TRY_AGAIN_S)
            except TimeoutError:
                await self._forget(process)
                raise LaunchError(
                    f"{host} has not answered for {_HELLO_S:g} s after the login. See"
                    f" {self._log_of(host)}, and try {host.command} {host.python or 'python3'} -V"
                ) from None
            except BaseException:
                await self._forget(process)
                raise
        raise AssertionError

    async def _start(self, host: Host) -> asyncio.subprocess.Process:
        """Start `ssh`. Its stderr goes to a log, beside what the node process there prints."""
        command = ["ssh", *(f"-o{option}" for option in _OPTIONS)]
        if host.port:
            command += ["-p", str(host.port)]
        if host.user:
            command += ["-l", host.user]
        command += ["--", host.name, _remote_command(host, len(_BOOTSTRAP))]
        _log.debug("connecting with %s: %s", host, shlex.join(command[:-1]))
        with self._log_of(host).open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                # Ctrl-C in a terminal goes to the launcher, which then stops its workers in order.
                start_new_session=True,
                limit=1 << 20,
            )
        return process

    async def _upload(
        self, host: Host, process: asyncio.subprocess.Process, limit: asyncio.Timeout
    ) -> None:
        """Send the bootstrap, its header and the code. Each piece that `ssh` has taken extends the limit."""
        header = {
            "hello": wire.HELLO,
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "versions": launcher_info.versions(),
            "needs": _NEEDS,
            "address": host.address,
            "gpus": self._sent.needs_gpus,
            "run": self._sent.run_id,
        }
        sent = _BOOTSTRAP + wire.frame(json.dumps(header).encode()) + wire.frame(self._sent.code)
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # the connection has ended, as stdout says too
            for start in range(0, len(sent), _UPLOADED_AT_ONCE):
                process.stdin.write(sent[start : start + _UPLOADED_AT_ONCE])
                await process.stdin.drain()
                if limit.expired():
                    return
                limit.reschedule(self._loop.time() + _HELLO_S)

    async def _begin(
        self, host: Host, process: asyncio.subprocess.Process, printed_from: int
    ) -> NodeReady:
        """Send the code to a host, and wait until the node process runs.

        Args:
            printed_from: The size that the host's log had before.

        Raises:
            TimeoutError: the host has not answered for `_HELLO_S`.
            LaunchError: this host can't be used.
            _Dropped: sshd may accept another connection.
        """
        assert process.stdout is not None
        async with asyncio.timeout(_HELLO_S) as limit:
            uploading = asyncio.create_task(self._upload(host, process, limit))
            try:
                refusal = await _read_hello(process.stdout)
                if refusal:
                    raise LaunchError(f"{host} cannot be used: {refusal}")
                ready = await wire.read_pickled(process.stdout)
            except EOFError:
                raise await self._refusal(host, process, printed_from) from None
            finally:
                uploading.cancel()
        assert isinstance(ready, NodeReady)
        return ready

    async def _refusal(
        self, host: Host, process: asyncio.subprocess.Process, printed_from: int
    ) -> Exception:
        """Return the error for a connection that has ended before the node process ran."""
        status = await process.wait()
        with self._log_of(host).open(errors="replace") as log:
            log.seek(printed_from)
            lines = [line.strip() for line in log if line.strip()]
        why = lines[-1] if lines else f"ssh has ended with exit status {status}"
        if status != _NOT_SSH:
            python = host.python or "python3"
            hint = f"its {python} could not be run: name another with hosts={{…: {{'python': …}}}}"
            return LaunchError(f"{host} cannot be used: {why}: {hint}")
        # ssh's own errors may have several lines, of which the last isn't always the reason.
        for line in reversed(lines):
            if any(text in line for text in _DROPPED):
                return _Dropped(f"{host} cannot be reached: {line}")
            for text, advice in _ADVICE:
                if text in line:
                    hint = advice.format(command=host.command)
                    return LaunchError(f"{host} cannot be reached: {line}: {hint}")
        return LaunchError(f"{host} cannot be reached: {why}: try {host.command} by hand")

    async def _serve(self, connected: Connected) -> None:
        """Send calls and take answers until the connection ends. Then try to connect again."""
        process = connected.process
        node = connected.node
        assert process.stdout is not None
        sending = asyncio.create_task(self._send(connected))
        try:
            while True:
                node.on_part(await wire.read_pickled(process.stdout))
        except EOFError:
            pass
        except Exception as error:
            why = f"it has sent something that cannot be read: {type(error).__name__}: {error}"
            self._end(connected, why)
        sending.cancel()
        status = await self._wait(process)
        # A negative status is that of the process `ssh` itself, which a signal has killed here.
        if status == _NOT_SSH or status < 0:
            gone = NodeGone(connected.why_ended or "the ssh connection was lost")
        else:
            gone = NodeGone(f"its node process has ended with exit status {status}", is_dead=True)
        node.on_gone(gone)
        if self._is_closing:
            return
        _log.debug("%s: %s", connected.host, gone)
        self._on_gone(connected)
        await self._return(connected.host)

    async def _send(self, connected: Connected) -> None:
        stdin = connected.process.stdin
        assert stdin is not None
        try:
            with contextlib.suppress(OSError):  # the connection has ended, as stdout says too
                async for part in connected.node.parts():
                    stdin.write(wire.pickled(part))
                    await stdin.drain()
                stdin.close()
        except LaunchError as error:
            self._end(connected, str(error))

    def _end(self, connected: Connected, why: str) -> None:
        _log.debug("the connection with %s is ended: %s", connected.host, why)
        connected.why_ended = connected.why_ended or why
        with contextlib.suppress(ProcessLookupError):
            connected.process.kill()

    async def _return(self, host: Host) -> None:
        """Try to connect again with a host that was lost, until it is back or the launch is over."""
        while not self._is_closing:
            await asyncio.sleep(_RETURN_S)
            try:
                connected = await self._connect(host)
            except Exception as error:  # also a full disk, or too many open files
                _log.debug("%s; trying again in %g s", error, _RETURN_S)
                continue
            self._on_back(connected)
            return

    async def _close(self) -> None:
        self._is_closing = True
        for process in list(self._processes):
            if process.stdin is not None:
                process.stdin.close()
        # Each `_serve` waits for its process too, and then forgets it.
        waiting = [asyncio.create_task(process.wait()) for process in self._processes]
        if waiting:
            await asyncio.wait(waiting, timeout=_END_S)
        for process in list(self._processes):
            await self._forget(process)
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _forget(self, process: asyncio.subprocess.Process) -> None:
        """End a process `ssh` that is of no use any more."""
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await self._wait(process)

    async def _wait(self, process: asyncio.subprocess.Process) -> int:
        """Wait until a process `ssh` has ended and its descriptors are closed. Return its exit status."""
        status = await process.wait()
        if process.stdin is not None:
            process.stdin.close()
            # What was still to be sent has nowhere to go.
            with contextlib.suppress(OSError):
                await process.stdin.wait_closed()
        self._processes.discard(process)
        return status

    def _log_of(self, host: Host) -> Path:
        return self._logs / f"ssh-{host.name.replace('/', '_')}-{host.port or 22}.log"


class _Dropped(Exception):
    """sshd has closed a connection before the login. It may accept another."""


async def _read_hello(output: asyncio.StreamReader) -> str:
    """Wait for the host's line that says hello. Return why it can't be used; empty if it can.

    Raises:
        EOFError: the connection has ended.
    """
    hello = wire.HELLO.encode()
    while True:
        line = await output.readline()
        if not line:
            raise EOFError
        if line.startswith(hello):
            refusal: str = json.loads(line.removeprefix(hello))["refusal"]
            return refusal


def _remote_command(host: Host, size: int) -> str:
    """Return the command for the user's shell on the host, whichever shell that is.

    It runs a Python that reads `size` bytes of source from stdin and executes them.
    """
    start = (
        "import os;r=lambda n,b=b'':b if len(b)>=n else r(n,b+(os.read(0,n-len(b))or exit('no launcher')));"
        f"exec(compile(r({size}),'bootstrap.py','exec'))"
    )
    if host.python:
        python = shlex.quote(host.python)
        script = f"exec {python} -c {shlex.quote(start)}"
    else:
        launchers = shlex.quote(sys.executable)
        script = f'p={launchers}; [ -x "$p" ] || p=python3; exec "$p" -c {shlex.quote(start)}'
    return f"exec sh -c {shlex.quote(script)}"
