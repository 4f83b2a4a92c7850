"""The smallest program: a node that greets, and a node that visits it."""

from __future__ import annotations

import os

import launchpad as lp


class Greeter:
    """An ordinary class. It doesn't know that its callers run elsewhere."""

    def greet(self, name: str) -> str:
        return f"Hello, {name}!"

    def process_id(self) -> int:
        return os.getpid()


def visit(greeter: lp.CourierClient[Greeter]) -> None:
    """Call the greeter. The handle from `make_program` arrives here as a client."""
    answer = greeter.greet("world")
    print(f"process {greeter.process_id()} says to process {os.getpid()}: {answer}")
    if answer != "Hello, world!":
        raise RuntimeError(f"the greeter should have greeted the world, and said {answer!r}")
    print("the greeting is right")


def make_program() -> lp.Program:
    """Return the graph: visitor → greeter."""
    program = lp.Program("hello_world")
    greeter = program.add_node(lp.CourierNode(Greeter), label="greeter")
    program.add_node(lp.PyNode(visit, greeter), label="visitor")
    return program
