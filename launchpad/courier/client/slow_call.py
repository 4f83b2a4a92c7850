"""What a caller does while it waits long: it looks for a reason, and logs it, once.

    after 2 s    is the server's process stopped (SIGSTOP, a debugger)?  The kernel is asked.
    after 10 s   do calls wait for each other?  A deadlock is found and logged (call_deadlock.py).

Neither ends the call: a stopped process may go on, and a deadlock may be broken by a deadline. A method
that merely takes long, or holds the GIL, gives no reason.
"""

from __future__ import annotations

import time
from pathlib import Path

from launchpad.courier import call_deadlock, call_stack
from launchpad.courier.client.remote_server import RemoteServer
from launchpad.courier.protocol import handshake
from launchpad.courier.telemetry.counters import warn

STOPPED_AFTER_S = 2.0
DEADLOCK_AFTER_S = 10.0


class SlowCallWatchdog:
    """One call that waits. `check` is called about every second.

    Without `may_ask` it looks for no deadlock, since asking other servers takes time.
    """

    def __init__(self, peer: RemoteServer, method: bytes, *, may_ask: bool = True) -> None:
        self._peer = peer
        self._method = method.decode()
        self._began = time.monotonic()
        self._reported_stopped, self._checked_deadlock = False, not may_ask

    def check(self) -> None:
        """Warns of what it finds, through `logging`, as `launchpad.courier`."""
        waited_s = time.monotonic() - self._began
        if waited_s > STOPPED_AFTER_S and not self._reported_stopped:
            pid = is_stopped(self._peer.server_hello)
            if pid:
                self._reported_stopped = True
                warn(
                    f"{self._peer} does not answer {self._method!r}: its process {pid} is stopped (by "
                    f"SIGSTOP, Ctrl-Z or a debugger). `kill -CONT {pid}` lets it go on."
                )
        if waited_s > DEADLOCK_AFTER_S and not self._checked_deadlock:
            self._checked_deadlock = call_deadlock.detect(
                call_stack.find_waits(call_stack.here.record)
            )


def is_stopped(server_hello: handshake.ServerHello | None) -> int:
    """The server's process id if it is stopped; 0 if it is not, or runs on another machine."""
    if server_hello is None or server_hello.boot_id != handshake.boot_id() or not server_hello.pid:
        return 0
    try:
        status = Path(f"/proc/{server_hello.pid}/stat").read_text()
    except OSError:
        return 0
    state = status.rpartition(")")[2].split()[0]  # a program's name may contain anything
    return server_hello.pid if state in "Tt" else 0
