import os
import signal

import launchpad as lp


class Server:
    def __init__(self):
        self.total = 0

    def add(self, number: int) -> int:
        self.total += number
        return self.total

    def crash(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def train(server):
    for step in range(30):
        if step in (10, 20):
            try:
                server.crash()
            except lp.courier.OutcomeUnknown:
                print(f"step {step}: the server was killed, go on")
        server.add(1)


if __name__ == "__main__":
    program = lp.Program("counting")
    server = program.add_node(lp.CourierNode(Server), label="server")
    program.add_node(lp.PyNode(train, server), label="trainer")
    lp.launch(program, restart=lp.RestartPolicy(max_restarts=3))
