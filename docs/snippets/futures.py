"""One node asks three others at once, and again with a deadline."""

import launchpad as lp


class Square:
    def of(self, number: int) -> int:
        if number < 0:
            raise ValueError(f"{number} is negative")
        return number * number

    def never(self) -> None:
        lp.wait_for_stop()


# part: calls
def ask(servers: list[lp.CourierClient]):
    futures = [server.futures.of(i) for i, server in enumerate(servers)]  # all are under way
    print([future.result() for future in futures])

    try:
        servers[0].of(-1)
    except ValueError as error:  # its own type
        print("caught:", error)
        print("raised", error.__cause__.text.splitlines()[-3].strip().split(", ", 1)[1])

    try:
        servers[0].never()
    except TimeoutError as error:  # courier.DeadlineExceeded is one
        print("caught:", type(error).__name__)


# part: program
program = lp.Program("squares")
with program.group("square"):
    servers = [
        program.add_node(lp.CourierNode(Square, courier_client_kwargs={"call_timeout": 1.0}))
        for _ in range(3)
    ]
program.add_node(lp.PyNode(ask, servers), label="asker")
lp.launch(program)
# end
