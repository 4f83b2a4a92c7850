"""Courier over TLS: both ends have a token and a certificate of the same run."""

import secrets

from launchpad import courier

# Made once; the other hosts get both over a channel that you trust.
courier.keyring.add("tcp:", secrets.token_bytes(32), courier.make_credentials())

server = courier.Server("greeter", address="tcp:127.0.0.1:0")  # 0: any port that is free
server.bind("greet", lambda name: f"Hello, {name}!")
server.start()

with courier.Client(server.address) as client:
    print(client.greet("world"))

courier.keyring.add("tcp:", secrets.token_bytes(32), courier.make_credentials())
with courier.Client(server.address) as stranger:
    try:
        stranger.greet("world")
    except courier.Refused:
        print("refused: another run's certificate")

server.stop()
