"""What can go wrong, by number, and which tests show what the user then sees.

A test whose name begins with `test_f21_` is about fault 21; `python -m pytest -m fault` runs them all, and
`python -m pytest -m "fault and ray"` those that launch on Ray.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]

FAULTS = {
    1: "an argument cannot be pickled",
    2: "an argument contains itself, or is nested too deep",
    3: "the payload is too large",
    4: "a label that no backend could carry",
    5: "the same node is added twice",
    6: "constructors that call each other",
    7: "a handle is used outside a running program",
    8: "handles deep inside arguments",
    9: "a handle of a node that is not in the program",
    10: "an environment variable set twice",
    11: "more GPUs, CPUs or memory than there are",
    12: "an import fails in a worker",
    13: "a constructor raises",
    14: "a constructor is slow",
    15: "a constructor hangs",
    16: "a call before the server is up",
    17: "a socket is taken away",
    18: "a killed run has left things behind",
    19: "a socket path is too long",
    20: "the system refuses a process, a descriptor, memory",
    21: "run() raises",
    22: "a worker is killed by a signal",
    23: "out of memory",
    24: "a segfault, os._exit, an early sys.exit(0)",
    25: "a crash loop",
    26: "a server dies with 1,000 calls in flight",
    27: "a server comes back at the same address",
    28: "a server comes back at another address",
    29: "a server has lost its state",
    30: "nodes that call each other in a ring",
    31: "endless recursion in a remote method",
    32: "a result or exception that cannot be pickled",
    33: "an exception that cannot be unpickled",
    34: "a traceback of 200 kB",
    35: "a stream that its consumer abandons",
    36: "a payload of 1 GiB",
    37: "20 workers that print 10,000 lines a second each",
    38: "the disk with the logs is full",
    39: "malformed frames",
    40: "a wrong token",
    41: "a peer that is stopped",
    42: "the network is cut, and heals",
    43: "the wall clock jumps",
    44: "a server runs out of descriptors",
    45: "user code forks",
    46: "user code changes signal handlers, descriptors, directory, session",
    47: "Ctrl-C",
    48: "Ctrl-C twice",
    49: "SIGTERM or SIGHUP to the launcher",
    50: "a worker ignores the stop",
    51: "the launcher is killed",
    52: "Ctrl-Z and fg",
    53: "the terminal goes away",
    54: "a stop during the start; two programs; a program launched by a node",
}

NOT_IN_THREADS = {
    17: "in-process addresses are names; no file and no port stands for them",
    20: "threads have no process of their own to be refused; that no thread starts is tested with them",
    22: "a thread cannot be killed by a signal: the process is, and the launcher with it",
    23: "memory belongs to the process, which is the launcher",
    24: "a segfault or os._exit ends the launcher too; sys.exit is tested with them",
    28: "an in-process address is a name in the launcher's own process",
    39: "in-process calls have no frames",
    40: "in-process calls show no token: they do not leave the process",
    41: "a stopped thread does not exist; to stop the process stops the caller as well",
    42: "no network",
    44: "a call between threads takes no descriptor",
    45: "forking from a process with threads is the user's own affair; children of workers are tested",
    46: "descriptors, directory and session are the launcher's own",
    51: "the workers are in the process that is killed",
    52: "the workers are in the process that is stopped",
}
"""Faults that cannot befall a thread, or not it alone, and why."""

NOT_ON_RAY = {
    41: "the carriers see it, with the TLS that they have everywhere: tests/courier/test_vanished_peers.py",
    42: "the same; what a node's death does to its workers is tested",
}
"""Faults from 12 on, before which nothing has started, that no test on Ray is about, and why."""

NOT_ON_KUBERNETES = {
    **NOT_ON_RAY,
    17: "pods call each other by TCP: no file stands for an address",
    19: "the same; the sockets of a pod are its own, in a short directory of its own",
}
"""The same for Kubernetes."""


@functools.cache
def tested() -> dict[int, list[str]]:
    """Fault → its tests, `tests/faults/test_run_faults.py::test_f21_…`."""
    found: dict[int, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for number in numbers(node.name):
                    found.setdefault(number, []).append(f"{path.name}::{node.name}")
    return found


def numbers(test: str) -> list[int]:
    """The faults that a test's name begins with: `test_f26_…`, `test_f31_to_f34_…`, `test_f12_f13_…`."""
    span = re.match(r"test_f(\d\d)_to_f(\d\d)_", test)
    if span:
        return list(range(int(span[1]), int(span[2]) + 1))
    head = re.match(r"test((?:_f\d\d)+)_", test)
    return [int(number) for number in re.findall(r"\d\d", head[1])] if head else []
