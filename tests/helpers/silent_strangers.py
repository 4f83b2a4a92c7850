"""A process that holds connections to an address and sends nothing; one that is closed it opens again."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

_LOOK_S = 0.05


@contextlib.contextmanager
def at(address: str, number: int, uid: int = -1) -> Iterator[None]:
    """So many connections to `unix:/path` or `tcp:HOST:PORT`, from when all have been tried once.

    Args:
        uid: Of the user who has them, if that is another one.
    """
    command = [sys.executable, __file__, address, str(number), str(uid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"all\n"
            yield
            assert process.poll() is None
        finally:
            process.kill()


def _hold(address: str, number: int, uid: int) -> None:
    os.setresuid(uid, uid, uid)
    kind, _, where = address.partition(":")
    host, _, port = where.rpartition(":")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    selector = selectors.DefaultSelector()
    has_tried_all = False
    while True:
        missing = number - len(selector.get_map())
        for _ in range(missing):
            sock = socket.socket(socket.AF_UNIX if kind == "unix" else socket.AF_INET)
            sock.setblocking(False)
            error = sock.connect_ex(where if kind == "unix" else (host, int(port)))
            if error not in (0, errno.EINPROGRESS):  # the backlog is full
                sock.close()
                break
            selector.register(sock, selectors.EVENT_READ)
        if not has_tried_all:
            has_tried_all = True
            print("all", flush=True)
        for key, _ in selector.select(_LOOK_S):
            sock = key.fileobj  # type: ignore[assignment]
            try:
                is_open = bool(sock.recv(4096))
            except BlockingIOError:
                is_open = True
            except OSError:
                is_open = False
            if not is_open:
                selector.unregister(sock)
                sock.close()
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    _hold(sys.argv[1], *map(int, sys.argv[2:]))
