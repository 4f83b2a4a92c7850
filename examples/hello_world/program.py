"""The smallest program with something to say: a node that greets, and one that visits it."""

from __future__ import annotations

import os

import launchpad as lp


class Greeter:
    """An ordinary class. It does not know that its callers are elsewhere."""

    def greet(self, name: str) -> str:
        return f"Hello, {name}!"

    def process_id(self) -> int:
        return os.getpid()


def visit(greeter: lp.CourierClient[Greeter]) -> None:
    """Call the greeter. What was a handle in `make_program` is a client here."""
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
