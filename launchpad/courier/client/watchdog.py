"""A watchdog for calls that wait for a long time. It looks for a reason, and logs the reason."""

from __future__ import annotations

import time
from pathlib import Path

from launchpad.courier import call_deadlock, call_stack, log
from launchpad.courier.client.server_info import ServerInfo
from launchpad.courier.protocol import handshake

STOPPED_AFTER_S = 2.0
DEADLOCK_AFTER_S = 10.0


class SlowCallWatchdog:
    """A watchdog for a call that waits. It logs the reason, once. Call `check` every second.

        after 2 s    Is the server's process stopped (SIGSTOP, a debugger)? The watchdog asks the kernel.
        after 10 s   Do calls wait for each other? If so, it logs the deadlock (call_deadlock.py).

    The watchdog never ends the call, because a stopped process may go on, and a deadline may break a
    deadlock. It reports no method that merely takes long or holds the GIL. Without `may_ask` it doesn't look
    for deadlocks, because asking other servers takes time.
    """

    def __init__(self, peer: ServerInfo, method: bytes, *, may_ask: bool = True) -> None:
        self._peer = peer
        self._method = method.decode()
        self._began = time.monotonic()
        self._reported_stopped = False
        self._checked_deadlock = not may_ask

    def check(self) -> None:
        """Look for a reason. If there is one, log a warning with the logger `launchpad.courier`."""
        waited_s = time.monotonic() - self._began
        if waited_s > STOPPED_AFTER_S and not self._reported_stopped:
            self._check_stopped()
        if waited_s > DEADLOCK_AFTER_S and not self._checked_deadlock:
            self._checked_deadlock = call_deadlock.detect(
                call_stack.find_waits(call_stack.here.record)
            )

    def _check_stopped(self) -> None:
        server_hello = self._peer.server_hello
        if not server_hello or server_hello.boot_id != handshake.boot_id() or not server_hello.pid:
            return
        try:
            status = Path(f"/proc/{server_hello.pid}/stat").read_text()
        except OSError:
            return
        state = status.rpartition(")")[2].split()[0]  # the name before it may contain anything
        if state in "Tt":
            self._reported_stopped = True
            log.warning(
                f"{self._peer} does not answer {self._method!r}: its process {server_hello.pid}"
                " is stopped (by SIGSTOP, Ctrl-Z or a debugger)."
                f" `kill -CONT {server_hello.pid}` lets it go on."
            )
