"""A process of ours: runs one function, to which we talk over a pipe.

A new interpreter that imports what it needs and nothing else, so that its memory is its own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
CHECK_EVERY_S = 120.0
_PR_SET_PDEATHSIG = 1


class Worker:
    """Runs `main(*args, pipe)` in a new process; it is killed when the stack is unwound.

    Example:
        with ExitStack() as stack:
            worker = Worker(stack, serve_raw, "/tmp/socket")
            address = worker.hear()
    """

    def __init__(self, stack: ExitStack, main: Callable[..., None], *args: Any) -> None:
        self._pipe, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.calls.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment(),
        )
        self._name = f"process {self.pid}, {main}"
        theirs.close()
        stack.callback(self._end)
        self._pipe.send((main, args))

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, something: Any) -> None:
        self._pipe.send(something)

    def ask(self, something: Any) -> Any:
        self.say(something)
        return self.hear()

    def hear(self) -> Any:
        """The next thing it has to say."""
        if not self._pipe.poll(CHECK_EVERY_S):
            raise TimeoutError(f"{self._name} has said nothing for {CHECK_EVERY_S:.0f} s")
        try:
            return self._pipe.recv()
        except EOFError:
            code = self._process.wait()
            raise RuntimeError(f"{self._name} has ended with {code}; see above") from None

    def pin(self, cores: set[int]) -> None:
        """All its threads; those that it starts later inherit."""
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            os.sched_setaffinity(int(thread), cores)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._pipe.close()


def environment() -> dict[str, str]:
    """Ours, with bytecode cached as it is wherever a program runs for the second time."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return env | {"PYTHONPATH": str(ROOT)}


def main() -> None:
    # A signal to the benchmark ends its servers too.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = Connection(int(sys.argv[1]))
    fn, args = pipe.recv()
    fn(*args, pipe)


if __name__ == "__main__":
    main()
