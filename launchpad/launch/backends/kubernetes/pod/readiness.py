"""Readiness: an open port, which says that the worker of a pod is ready. A kubelet looks for it.

Not gRPC's health check: only clusters from 1.24 on know that, and the image would have to have grpcio. Not a
command: each would be a process more in the container, and the image would have to have it.
"""

from __future__ import annotations

import socket

from launchpad.launch.backends.kubernetes.objects.layout import READY_PORT


class Readiness:
    """Used by one thread."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None

    def tell(self) -> None:
        """From now on the port is open, as long as the process lives.

        Raises:
          OSError: it belongs to somebody else.
        """
        if self._listener is None:
            self._listener = socket.create_server(("", READY_PORT))
            self._listener.setblocking(False)

    def answer(self) -> None:
        """Lets those go who have looked, so that there is room for the next."""
        while self._listener is not None:
            try:
                self._listener.accept()[0].close()
            except OSError:
                return
