"""A service that launchpad knows nothing about, at an address it places."""

import http.server
import urllib.request

import launchpad as lp


class Board:
    def __init__(self, address: lp.Address):
        port = lp.get_port_from_address(address.resolve())
        self.server = http.server.ThreadingHTTPServer(("localhost", port), Pages)
        lp.register_stop_handler(self.server.shutdown)

    def run(self):
        with self.server:
            self.server.serve_forever()


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"hello from {lp.current().name}".encode())

    def log_message(self, *args):
        """Quiet."""


def read(address):
    place = address.wait(timeout_s=60)  # until the board listens there
    with urllib.request.urlopen(f"http://{place}/") as page:
        print(page.read().decode())


address = lp.Address("http")
node = lp.PyClassNode(Board, address)
node.allocate_address(address)  # this node owns it; others may resolve it

program = lp.Program("board")
program.add_node(node, label="board")
with program.group("reader", main=True):
    program.add_node(lp.PyNode(read, address))
lp.launch(program)
