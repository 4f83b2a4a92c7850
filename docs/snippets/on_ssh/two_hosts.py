"""A program on two hosts: a server on one, and a worker that calls it."""

import socket

import launchpad as lp


class Greeter:
    def greet(self, name: str) -> str:
        return f"hello, {name}, from {socket.gethostname()}"


def ask(greeter: Greeter) -> None:
    print(greeter.greet("worker"))
    lp.stop()


program = lp.Program("greetings")
greeter = program.add_node(lp.CourierNode(Greeter), label="greeter")
program.add_node(lp.PyNode(ask, greeter), label="asker")
# part: launch
lp.launch(program, "ssh", hosts=["h1", "alice@h2:2222"])
# end
