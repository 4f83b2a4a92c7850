"""Nodes that pods run."""

from __future__ import annotations

import inspect
import mmap
import os
import pickle
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import launchpad as lp


class Server:
    """Says who it is; dies when it is told to."""

    def attempt(self) -> int:
        return lp.current().attempt

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def eat(self) -> None:
        """Memory that no limit of the process counts, only that of its container."""
        page = b"x" * (1 << 20)
        pieces = []
        while True:
            piece = mmap.mmap(-1, len(page))
            piece.write(page)
            pieces.append(piece)


class Caller:
    """Calls a server until it hears an attempt of that number."""

    def __init__(self, server: Any, attempt: int) -> None:
        self._server = server
        self._attempt = attempt

    def run(self) -> None:
        received = 0
        while received < self._attempt:
            try:
                now = self._server.attempt()
            except lp.courier.CourierError as error:
                print(type(error).__name__, flush=True)
                continue
            if now != received:
                received = now
                print(f"reached attempt {received}", flush=True)
            time.sleep(0.05)


class BuiltWhenToldSo:
    """Takes until a file is there."""

    def __init__(self, file: str) -> None:
        print("building", flush=True)
        while not os.path.exists(file):
            time.sleep(0.01)

    def run(self) -> None:
        lp.wait_for_stop()


def raises() -> None:
    """Fails, with a traceback to look at."""
    print("the last line")
    raise ValueError("boom")


def dies() -> None:
    """By a signal."""
    os.kill(os.getpid(), signal.SIGKILL)


def leaves_a_process() -> None:
    """One that has left its group and its session, and whose parent has ended."""
    forked = "setsid sleep 1000 >/dev/null 2>&1 & echo $!"
    subprocess.run(["sh", "-c", forked], check=True, env={"PATH": os.environ["PATH"]})


def starts_a_process_and_waits() -> None:
    """One that has left its group and its session."""
    print(subprocess.Popen(["sleep", "1000"], start_new_session=True).pid, flush=True)
    lp.wait_for_stop()


def remembers() -> None:
    """Adds a line to what it finds in its state directory."""
    me = lp.current()
    with (me.state_dir / "notes").open("a") as file:
        file.write(f"attempt {me.attempt}\n")


def holds(content: bytes) -> None:
    """Says how much it was given."""
    print(len(content))


def waits() -> None:
    """Print a line, and wait until the program stops."""
    print("waiting", flush=True)
    lp.wait_for_stop()


def keeps(password: bytes) -> None:
    """Is given something that is nobody's business."""
    print("kept", len(password), len(os.environ.get("API_KEY", "")), flush=True)
    lp.wait_for_stop()


def never_stops() -> None:
    """Knows that it is to stop, and does not."""
    print("waiting", lp.stop_event().is_set(), flush=True)
    while True:
        time.sleep(0.01)


class Net:
    """A model."""


def pickle_a_net() -> None:
    """Says whether one is itself again after pickling, and where its source begins."""
    same = type(pickle.loads(pickle.dumps(Net()))) is Net
    print(same, inspect.getsource(Net).splitlines()[0])


def writes(folder: str, n_bytes: int) -> None:
    """Writes a file of that size, and waits."""
    (Path(folder) / "large").write_bytes(bytes(n_bytes))
    lp.wait_for_stop()
