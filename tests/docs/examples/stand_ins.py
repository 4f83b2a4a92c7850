"""What examples take for granted: modules, and stand-ins for what users have."""

from __future__ import annotations

import contextlib
import http.server
import json
import pathlib
import random
import secrets
import threading
import types
from typing import Any

import numpy as np
import pytest

import launchpad as lp


class Learner:
    def __init__(self, lr: Any = 1.0) -> None:
        self.lr = lr

    def step(self, *batch: Any, **options: Any) -> Any:
        return self.lr

    def get_variables(self) -> list[Any]:
        return [self.lr]


class Actor:
    def __init__(self, *args: Any, seed: int = 0) -> None:
        self.args = args

    def run(self) -> None:
        return None


class Greeter:
    def greet(self, name: str) -> str:
        return f"Hello, {name}!"


class Parameters:
    def pull(self) -> list[float]:
        return [0.0]

    def push(self, gradient: list[float]) -> None:
        return None


class Table:
    """What several clients are clients of: rows by key, values by number."""

    def __init__(self) -> None:
        self.rows: dict[Any, Any] = {}
        self.values = np.zeros(500_000)  # half of them

    def put(self, key: Any, value: Any) -> None:
        self.rows[key] = value

    def get(self, key: Any) -> Any:
        return [self.rows.get(k) for k in key] if isinstance(key, list) else self.rows.get(key)

    def load(self, name: Any) -> str:
        return str(name)

    def step(self, *batch: Any, **options: Any) -> int:
        return len(batch)

    def act(self, observation: float) -> float:
        return -observation

    def push(self, *args: Any, **options: Any) -> None:
        return None

    def pull(self, keys: Any) -> Any:
        return self.values[keys]


class Sums:
    """Adds up; under the names that examples have for it."""

    def __init__(self) -> None:
        self.amount = 0

    def add(self, amount: int) -> int:
        self.amount += amount
        return self.amount

    deposit = add

    def balance(self) -> int:
        return self.amount


class serve(contextlib.AbstractContextManager["serve"]):  # noqa: N801 - a function to those who call it
    """Serves a folder over HTTP."""

    def __init__(self, folder: str, endpoint: str) -> None:
        host, _, port = endpoint.rpartition(":")
        handler = http.server.SimpleHTTPRequestHandler
        self.server = http.server.HTTPServer((host, int(port)), handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def shutdown(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def __exit__(self, *_: object) -> None:
        self.shutdown()


def ask(server: lp.CourierClient[Greeter]) -> str:
    return server.greet("reader")


def train(learner: Any = None, num_steps: int = 1) -> list[Any]:
    lp.heartbeat()
    return [learner.step(step) if learner else 0.5 for step in range(num_steps)]


def use(*clients: Any) -> None:
    assert all(clients)


def fail() -> None:
    raise ValueError("no data")


NAMES: dict[str, Any] = {
    # Modules, and what is imported from them.
    "lp": lp,
    "contextlib": contextlib,
    "courier": lp.courier,
    "json": json,
    "np": np,
    "pathlib": pathlib,
    "pytest": pytest,
    "random": random,
    "testing": lp.testing,
    "threading": threading,
    "time": types.SimpleNamespace(sleep=lambda seconds: None),
    "Client": lp.courier.Client,
    # Classes and functions.
    "Actor": Actor,
    "Batch": list,
    "Learner": Learner,
    "Parameters": Parameters,
    "Row": str,
    "Server": Greeter,
    "Table": Table,
    "act": use,
    "ask": ask,
    "evaluate": abs,
    "load_tables": list,
    "make_environment": str,
    "make_tables": list,
    "read": use,
    "render": str.upper,
    "sample": use,
    "serve": serve,
    "train": train,
    "work": lambda queue: queue.counts(),
    # Values.
    "batch": list(range(64)),
    "batches": [[0.5], [1.5]],
    "clock": 7,
    "done": False,
    "frames": ["a", "b"],
    "gradient": np.ones(2),
    "keys": np.array([0, 500_000]),
    "observation": np.zeros(4),
    "observations": [0.5, 1.5],
    "rows": np.array([1, 500_001]),
    "snapshot": "checkpoint-7",
    "token": secrets.token_bytes(16),
    "weights": [0.5],
}
"""An example that means something else by one of these is given that."""


# --- programs ------------------------------------------------------------------------------------


def hello() -> lp.Program:
    """A program whose one worker calls the other, and that ends."""
    program = lp.Program("hello")
    server = program.add_node(lp.CourierNode(Greeter), label="server")
    program.add_node(lp.PyNode(ask, server), label="client")
    return program


def program_of(node: Any, label: str = "worker", *, is_restarted: bool = False) -> lp.Program:
    """A program of one node."""
    program = lp.Program("example")
    with program.group(label, restart=lp.RestartPolicy() if is_restarted else None):
        program.add_node(node)
    return program


def training() -> dict[str, Any]:
    """A program to which something can be added, and a learner in it."""
    program = lp.Program("training")
    return {
        "program": program,
        "learner": program.add_node(lp.CourierNode(Learner), label="learner"),
    }
