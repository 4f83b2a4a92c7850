# part: program
import launchpad as lp


class Server:
    def greet(self, name: str) -> str:
        return f"hello {name}"


def ask(server: lp.CourierClient[Server], name: str) -> str:
    print("asking …")
    return server.greet(name)


program = lp.Program("hello_world")
server = program.add_node(lp.CourierNode(Server), label="server")
with program.group("client"):
    for name in ("ann", "bob"):
        program.add_node(lp.PyNode(ask, server, name))
program

# part: run
running = lp.launch(program, "local_mp")
running.wait(timeout_s=30)
running.results("client")

# part: status
running

# end
