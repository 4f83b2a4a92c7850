"""Courier without a program: a server and a client, here in one process."""

from launchpad import courier


class Greeter:
    def greet(self, name: str) -> str:
        return f"Hello, {name}!"


server = courier.Server("greeter")  # in a fresh private directory: server.address says where
server.bind_object(Greeter())
server.bind("shout", str.upper)
server.start()

with courier.Client(server.address) as client:  # any process of this user may do this
    print(courier.list_methods(client))
    print(client.greet("world"))
    print(client.shout("hello"))
    try:
        client.great("world")
    except courier.MethodNotFound as error:
        print(error.available)

server.stop()
