"""A server at two addresses, and a client that finds it again wherever it comes back."""

from launchpad import courier


def start(name: str) -> courier.Server:
    server = courier.Server(name, also_at=["tcp:127.0.0.1:0"])  # the first one: a fresh socket
    server.bind("who", lambda: name)
    server.start()
    return server


places: list[str] = []  # in a program: a table that one node keeps, and sends to all
client = courier.Client(lambda: places[-1] if places else "")  # "": not known yet
waiting = client.futures.who()

server = start("first")
print([address.partition(":")[0] for address in server.addresses])
places.append(server.addresses[0])
print(waiting.result())

server.stop()
server = start("second")
places.append(server.addresses[1])
print(client.who())

courier.close(client)
server.stop()
