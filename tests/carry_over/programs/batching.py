"""A server that answers the calls of several clients in batches; made for each object, as in dm-launchpad."""

import numpy as np
from absl import app

import launchpad as lp

BATCH_SIZE = 5


class Server:
    def __init__(self, batch_size):
        self._sum = 0
        self.compute = lp.batched_handler(batch_size=batch_size)(self._compute)

    def _compute(self, values):
        return np.asarray(values) ** 2


class Client:
    def __init__(self, client_id, server):
        self._client_id = client_id
        self._server = server

    def run(self):
        result = self._server.compute(self._client_id)
        assert result == self._client_id**2, result
        print("client", self._client_id, "got", int(result))


def make_program() -> lp.Program:
    program = lp.Program("batching")
    with program.group("server"):
        server = program.add_node(lp.CourierNode(Server, batch_size=BATCH_SIZE))
    with program.group("client"):
        for client_id in range(BATCH_SIZE):
            program.add_node(lp.CourierNode(Client, client_id=client_id, server=server))
    return program


def main(_):
    lp.launch(make_program())


if __name__ == "__main__":
    app.run(main)
