"""Nodes that start processes of their own, which call the other nodes."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
from typing import Any

CHILD = """
import pickle, sys
client = pickle.load(sys.stdin.buffer)
print(client.double(4))
"""


class Doubler:
    """Doubles."""

    def double(self, number: int) -> int:
        return 2 * number


def call(client: Any, number: int) -> None:
    """Call the server from the child."""
    assert client.double(number) == 2 * number


class Spawner:
    """A node that hands its client to a process, which it starts by the given method."""

    def __init__(self, doubler: Any, method: str) -> None:
        self._doubler = doubler
        self._method = method

    def run(self) -> None:
        if self._method == "subprocess":
            data = pickle.dumps(self._doubler)
            command = [sys.executable, "-c", CHILD]
            done = subprocess.run(command, input=data, check=True, stdout=subprocess.PIPE)
            assert done.stdout == b"8\n"
        else:
            context: Any = multiprocessing.get_context(self._method)
            child = context.Process(target=call, args=(self._doubler, 4))
            child.start()
            child.join()
            assert child.exitcode == 0
