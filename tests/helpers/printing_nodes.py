"""Nodes that print, in all the ways there are. Workers import this module, and not pytest."""

from __future__ import annotations

import itertools
import logging
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import launchpad as lp


class SlowToBuild:
    """A server whose constructor takes so long."""

    def __init__(self, seconds: float) -> None:
        time.sleep(seconds)

    def answer(self) -> int:
        return 7


def calls(server: Any) -> None:
    """Calls it once."""
    print(f"the answer is {server.answer()}")


def in_all_ways(count: int) -> None:
    """At least so many rounds of a line from print, logging, descriptors 1 and 2, and a subprocess.

    There are more until the log has been turned over.
    """
    log = os.fstat(1).st_ino
    logger = logging.getLogger("printers")
    logger.addHandler(logging.StreamHandler())
    for i in itertools.count():
        if i >= count and os.fstat(1).st_ino != log:
            break
        print(f"print {i}")
        logger.warning("logging %d", i)
        os.write(1, f"one {i}\n".encode())
        os.write(2, f"two {i}\n".encode())
        if not i % 100:
            subprocess.run(["echo", f"child {i}"], check=True)
            time.sleep(0.02)


def by_every_stream() -> None:
    """A line from each of the ways that Python's two streams have."""
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        stream.writelines([f"{name} lines", " together\n"])
        stream.buffer.write(f"{name} bytes\n".encode())
        stream.buffer.writelines([f"{name} lines".encode(), bytearray(b" of bytes\n")])
        stream.buffer.flush()


def odd_characters() -> None:
    """Print a character that an ASCII stream cannot take, and one that UTF-8 cannot."""
    for stream in (sys.stdout, sys.stderr):
        print("caf\u00e9 \udcff", file=stream, flush=True)


def by_early_logger() -> None:
    """A line by a logger that the script has configured before."""
    logging.getLogger("early").warning("by a logger")


def until_turned_over(times: int) -> None:
    """Numbered lines until its log has been turned over so often."""
    logs = Path(os.environ["LAUNCHPAD_LOGGING_DIR"])
    for i in itertools.count():
        print(f"{i:06d}")
        if not i % 100:
            time.sleep(0.002)
            if any(int(part.suffix[1:]) >= times for part in logs.glob("*/printer-0.log.*")):
                break


def fails_at_first() -> None:
    attempt = lp.current().attempt
    print(f"this is attempt {attempt}")
    if attempt == 1:
        raise ValueError("once")


def with_little_room(room: int) -> None:
    """Prints more than its files may hold, then goes on with its work."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    for i in range(200):
        print("x" * 100, i)
        print("y" * 100, i, file=sys.stderr)
    lp.stop()


def until_it_is_full(directory: str) -> None:
    """Fills the disk on which its log is, prints, and says elsewhere that it came so far."""
    for i in range(2000):
        print("x" * 1000, i)
    Path(directory, "came-so-far").touch()


def closes_its_descriptors() -> None:
    """Prints before and after that, and fails."""
    print("before", flush=True)
    for fd in (0, 1, 2):
        os.close(fd)
    os.chdir("/")
    print("after")
    print("an error", file=sys.stderr)
    raise ValueError("seen all the same")


def moves_its_output(path: str) -> None:
    """Sends descriptor 1 elsewhere, as a daemon does, and prints until the log is turned over."""
    with open(path, "ab") as file:
        os.dup2(file.fileno(), 1)
    log = os.fstat(2).st_ino
    while os.fstat(2).st_ino == log:
        os.write(2, b"e" * 1000 + b"\n")
        time.sleep(0.02)
    print("elsewhere", flush=True)


def flood(lines_per_s: int, seconds: float) -> None:
    """Print numbered lines, this many per second."""
    began = time.monotonic()
    n_lines = int(lines_per_s * seconds)
    n_printed = 0
    while n_printed < n_lines:
        passed_s = time.monotonic() - began
        n_due = min(int(passed_s * lines_per_s), n_lines)
        for i in range(n_printed, n_due):
            print(f"line {i} of a worker that has much to say about its work")
        n_printed = n_due
        time.sleep(0.005)


def prints_in_a_signal_handler(count: int) -> None:
    """Prints so many lines, and as many from a handler that comes in between, wherever that is."""
    handled = 0

    def on_alarm(number: int, frame: object) -> None:
        nonlocal handled
        handled += 1  # before it prints: while it does, it may be called again
        print(f"handler {handled}")

    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    for i in range(count):
        print(f"main {i}")
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(f"handled {handled}")
