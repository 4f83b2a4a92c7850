"""What can go wrong, by number, and which tests show what the user then sees.

A test whose name begins with `test_f21_` is about fault 21; `python -m pytest -m fault` runs them all, and
`python -m pytest -m "fault and ray"` those that launch on Ray.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from tests.faults import backends

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

NOT_ON_RAY = {
    14: "the launcher names it, from what it knows of any worker",
    18: "the launcher sweeps, before it knows where workers will run; what a node keeps is in F51",
    30: "servers find it, at whatever addresses they call each other: tests/courier",
    41: "the carriers see it, with the TLS that they have everywhere: tests/courier/test_vanished_peers.py",
    42: "the same; what a node's death does to its workers is tested",
    43: "nothing looks at the clock, wherever it runs",
    52: "the launcher alone is stopped; workers are no processes of its terminal",
    53: "the launcher alone has the terminal; to its workers it is a stop, F49",
}
"""Faults from 12 on, before which nothing has started, that no test on Ray is about, and why."""

NOT_ON_KUBERNETES = {
    **NOT_ON_RAY,
    17: "pods call each other by TCP: no file stands for an address",
    49: "the launcher hears it, and what it does then is F47",
    19: "the same; the sockets of a pod are its own, in a short directory of its own",
}
"""The same for Kubernetes."""


@functools.cache
def tested() -> dict[int, set[str]]:
    """Fault → where its tests run: on "Ray", on "Kubernetes", and "here"."""
    found: dict[int, set[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text()
        if not re.search(r"^\s*(async )?def test_f\d", text, flags=re.M):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for number in numbers(node.name):
                    found.setdefault(number, set()).update(_lanes(path.parent.name, node))
    return found


def _lanes(folder: str, test: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Known by its folder, the contract's fixtures, or the launch types in its decorators."""
    arguments = {argument.arg for argument in test.args.args}
    if folder == "contract" and {"launch_type", "process_launch_type"} & arguments:
        return {"here", "Ray", "Kubernetes"}
    words = {folder}
    for decorator in map(ast.unparse, test.decorator_list):
        words.update(re.findall(r"'([a-z_]+)'", decorator))
        if decorator in vars(backends):
            words.update(vars(backends)[decorator].args[1])
    lanes = {"ray": "Ray", "kubernetes": "Kubernetes"}
    return {lanes.get(word.removeprefix("test_"), "here") for word in words}


def numbers(test: str) -> list[int]:
    """The faults that a test's name begins with: `test_f26_…`, `test_f31_to_f34_…`, `test_f12_f13_…`."""
    span = re.match(r"test_f(\d\d)_to_f(\d\d)_", test)
    if span:
        return list(range(int(span[1]), int(span[2]) + 1))
    head = re.match(r"test((?:_f\d\d)+)_", test)
    return [int(number) for number in re.findall(r"\d\d", head[1])] if head else []
