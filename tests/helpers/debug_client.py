"""A client of the Debug Adapter Protocol, as VS Code is one, for one process that debugpy debugs."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
from pathlib import Path
from typing import Any

WAIT_S = 60.0


class DebugClient:
    """A session with the adapter at this port, which may not listen yet."""

    def __init__(self, port: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
                self._socket.settimeout(None)
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline, "debugpy does not listen"
                time.sleep(0.05)
        self._sequence = 0
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        self._responses: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def attach(self, script: Path, line: int, configuration: dict[str, Any]) -> None:
        """Attaches to the process that the configuration names, with a breakpoint in the script."""
        self.ask("initialize", adapterID="python", pathFormat="path")
        attached = self._send("attach", configuration)
        self.event("initialized")
        self.ask("setBreakpoints", source={"path": str(script)}, breakpoints=[{"line": line}])
        self.ask("configurationDone")
        response = self._responses[attached].get(timeout=WAIT_S)
        assert response["success"], response

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Returns the body of the response."""
        response = self._responses[self._send(command, arguments)].get(timeout=WAIT_S)
        assert response["success"], response
        body: dict[str, Any] = response.get("body", {})
        return body

    def event(self, *names: str) -> dict[str, Any]:
        """Returns the next event of one of these names; others are passed over."""
        while True:
            event = self._events.get(timeout=WAIT_S)
            if event["event"] in names:
                return event

    def close(self) -> None:
        """Ends the session, as a client does after the event `terminated`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join(WAIT_S)
        self._socket.close()

    def _send(self, command: str, arguments: dict[str, Any]) -> int:
        self._sequence += 1
        self._responses[self._sequence] = queue.Queue()
        request = {"seq": self._sequence, "type": "request", "command": command}
        body = json.dumps({**request, "arguments": arguments}).encode()
        self._socket.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        return self._sequence

    def _read(self) -> None:
        with contextlib.suppress(ConnectionResetError), self._socket.makefile("rb") as file:
            for header in iter(file.readline, b""):
                assert header.startswith(b"Content-Length: "), header
                file.readline()
                message = json.loads(file.read(int(header.split()[1])))
                if message["type"] == "response":
                    self._responses[message["request_seq"]].put(message)
                elif message["type"] == "event":
                    self._events.put(message)
