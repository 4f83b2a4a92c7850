"""Clone: the keeper as a copy of this process, which has imported most of what the host needs.

It is there sooner than one that boots, which is most of what a pod takes to start. Only for a process that
has one thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from launchpad.launch.backends.processes import kernel


class Clone:
    """A copy that calls `main(*arguments)`, as far as `ProcessWorkers` needs a `subprocess.Popen`.

    Args:
      log: The file that it prints to.
      keep: The descriptors that it keeps.
    """

    def __init__(
        self, main: Callable[..., NoReturn], *arguments: Any, log: int, keep: Sequence[int]
    ) -> None:
        assert threading.active_count() == 1, "another thread may hold a lock for ever in the copy"
        self.returncode: int | None = None
        self._is_waited_for = threading.Lock()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(main, arguments, log, keep)

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, or the signal as a negative number, when it has ended."""
        with self._is_waited_for:
            if self.returncode is None:
                self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def terminate(self) -> None:
        """By SIGTERM."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """By SIGKILL."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # somebody waits for it, and just now
                os.kill(self.pid, number)


def _become(
    main: Callable[..., NoReturn], arguments: Sequence[Any], log: int, keep: Sequence[int]
) -> NoReturn:
    """What a new process would begin with, and then `main`."""
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        tempfile.tempdir = None  # a worker may have another $TMPDIR
        os.dup2(log, 1)
        os.dup2(log, 2)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        kernel.close_all_but(set(keep))
        for fd in keep:
            os.set_inheritable(fd, True)
        main(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
