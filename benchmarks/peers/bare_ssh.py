"""A measurement of bare `ssh`: start N processes on some hosts, and get an answer from each.

    bare_ssh.py HOST,HOST,… N [MODULE …]

Each host has one `ssh`, which starts multiprocessing's forkserver there. The forkserver preloads the modules.
Each process that it forks connects with this script, and sends back the number that it gets.
"""

import multiprocessing
import shlex
import socket
import struct
import subprocess
import sys
import time

NUMBER = struct.Struct("!I")
OPTIONS = ("-oBatchMode=yes", "-oControlPath=none", "-oRequestTTY=no")


def echo_once(port: int) -> None:
    """Connect with the script that has started everything, and send back what it sends."""
    # sshd tells every process of a connection who has connected.
    launcher = sys.argv[2]
    with socket.create_connection((launcher, port)) as connection:
        connection.sendall(connection.recv(NUMBER.size, socket.MSG_WAITALL))


def serve(n: int, port: int, preload: list[str]) -> None:
    """Start `n` processes on this host."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", *preload])
    processes = [context.Process(target=echo_once, args=(port,)) for _ in range(n)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def seconds(hosts: list[str], n: int, preload: list[str]) -> float:
    """Return the seconds until `n` processes on these hosts have answered."""
    own_address = socket.gethostbyname(socket.gethostname())
    with socket.create_server(("", 0), backlog=n) as server:
        port = server.getsockname()[1]
        began = time.perf_counter()
        clients = []
        for i, host in enumerate(hosts):
            n_here = len(range(i, n, len(hosts)))
            command = [sys.executable, __file__, "serve", own_address, n_here, port, *preload]
            remote = shlex.join(["env", f"PYTHONPATH={':'.join(sys.path)}", *map(str, command)])
            ssh = ["ssh", *OPTIONS, host, remote]
            clients.append(subprocess.Popen(ssh, stdin=subprocess.DEVNULL))
        connections = []
        for i in range(n):
            connection, _ = server.accept()
            connection.sendall(NUMBER.pack(i))
            connections.append(connection)
        for i, connection in enumerate(connections):
            (answer,) = NUMBER.unpack(connection.recv(NUMBER.size, socket.MSG_WAITALL))
            assert answer == i
        took_s = time.perf_counter() - began
    for client in clients:
        client.wait()
    return took_s


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
    else:
        print(seconds(sys.argv[1].split(","), int(sys.argv[2]), sys.argv[3:]))
