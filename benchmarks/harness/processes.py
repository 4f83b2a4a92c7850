"""Other processes of a benchmark."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.harness.command_line import APART

ROOT = Path(__file__).resolve().parent.parent.parent
CHECK_EVERY_S = 120.0
_PR_SET_PDEATHSIG = 1


def environment(**more: str) -> dict[str, str]:
    """Return our environment and `more`, with the cache of bytecode on, as in ordinary runs."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**env, "PYTHONPATH": str(ROOT), **more}


def command_apart(
    function: Callable[..., Any], *args: Any, python: str = sys.executable
) -> list[str]:
    """Return the command that runs a function of this script in a new interpreter."""
    script = sys.modules["__main__"].__file__
    assert script is not None
    return [python, script, APART, json.dumps([function.__name__, args])]


def apart(
    function: Callable[..., Any],
    *args: Any,
    python: str = sys.executable,
    env: Mapping[str, str] | None = None,
) -> Any:
    """Run a function of this script in a new interpreter. Arguments and result travel as JSON."""
    command = command_apart(function, *args, python=python)
    process = subprocess.run(
        command, env=env or environment(), stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(process.stdout.splitlines()[-1])


def run_threads(*mains: Callable[[], object]) -> None:
    """Run each function in a thread of its own, and wait until all have ended."""
    threads = [threading.Thread(target=main) for main in mains]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def wait_until(is_so: Callable[[], bool], within_s: float, pause_s: float = 0.002) -> bool:
    """Wait until `is_so` returns True; return False if that takes too long."""
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True


class Worker:
    """A process that runs `main(*args, pipe)`. It is killed when the stack is unwound.

    It is a new interpreter and no fork, so that it shares no memory with the script. It imports only what
    it needs.

    Example:
        with ExitStack() as stack:
            worker = Worker(stack, serve_raw, "/tmp/socket")
            address = worker.hear()
    """

    def __init__(self, stack: ExitStack, main: Callable[..., None], *args: Any) -> None:
        self._pipe, theirs = Pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.harness.processes", str(theirs.fileno())],
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
        """Return the next object that the process sends."""
        if not self._pipe.poll(CHECK_EVERY_S):
            raise TimeoutError(f"{self._name} has said nothing for {CHECK_EVERY_S:.0f} s")
        try:
            return self._pipe.recv()
        except EOFError:
            code = self._process.wait()
            raise RuntimeError(f"{self._name} has ended with {code}; see above") from None

    def pin(self, cores: set[int]) -> None:
        """Pin all threads of the process to these cores. Threads that they start inherit that."""
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            os.sched_setaffinity(int(thread), cores)

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._pipe.close()


def _main() -> None:
    # The kernel kills this process when the benchmark dies. Ctrl-C goes to both of them: the benchmark
    # handles it, and ends this process.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipe = Connection(int(sys.argv[1]))
    main, args = pipe.recv()
    main(*args, pipe)


if __name__ == "__main__":
    _main()
