"""A process that runs on a host, as `subprocess.Popen` shows a process."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from types import TracebackType
from typing import Any

import psutil

from tests.waiting import runs

_LIMIT_S = 5.0
_POLL_S = 0.002


class HostProcess(subprocess.Popen[str]):
    """A command on a host. `pid` is that of `nsenter`, which waits for the command and ends as it does.

    Signals go to the command. When a `with` block ends, the command is killed.
    """

    def send_signal(self, sig: int) -> None:
        """Send a signal to the command, unless it has ended."""
        command = self._find_command()
        if command is None:
            super().send_signal(sig)
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            command.send_signal(sig)
        if sig == signal.SIGKILL:
            deadline = time.monotonic() + _LIMIT_S
            while runs(command) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            # On a frozen host, nsenter would not notice the command's end.
            super().send_signal(sig)

    def write_line(self, line: str) -> None:
        """Send the command a line. It needs `stdin=PIPE`."""
        assert self.stdin is not None
        self.stdin.write(f"{line}\n")
        self.stdin.flush()

    def read_line(self) -> str:
        """Return the next line that the command prints. It needs `stdout=PIPE`."""
        assert self.stdout is not None
        line = self.stdout.readline()
        assert line, f"{self.args!r} has ended, with {self.poll()}"
        return line.strip()

    def command(self) -> psutil.Process:
        """Return the command's process."""
        command = self._find_command()
        assert command is not None, f"{self.args!r} does not run, it ended with {self.poll()}"
        return command

    def _find_command(self) -> psutil.Process | None:
        """Return the command's process, or None if it has ended, or can't start on a frozen host."""
        deadline = time.monotonic() + _LIMIT_S
        while self.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(psutil.NoSuchProcess):
                children = psutil.Process(self.pid).children()
                if children:
                    return children[0]
            time.sleep(_POLL_S)
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        self.kill()
        return super().__exit__(kind, value, traceback)
