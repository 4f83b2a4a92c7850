"""What a caller does while it waits long: it looks for a reason, and says so, once.

    after 2 s    is the server's process stopped (SIGSTOP, a debugger)?  the kernel knows
    after 10 s   do we wait for each other?  a ring of waiting calls is found and named (rings.py)

Neither ends the call: a stopped process may go on, and a ring may be broken by a deadline. A method
that merely takes long, or holds the GIL, gives no reason.
"""

from __future__ import annotations

import time
from pathlib import Path

from launchpad.courier.clients.peer import Peer
from launchpad.courier.protocol import greeting
from launchpad.courier.watching.log import warn

STOPPED_AFTER_S = 2.0
RING_AFTER_S = 10.0


class Patience:
    """One call that waits. `look` is called about every second.

    Without `may_ask` it does not ask others, which would take time: for who may have to go on at once.
    """

    def __init__(self, peer: Peer, method: bytes, *, may_ask: bool = True) -> None:
        self._peer = peer
        self._method = method.decode()
        self._began = time.monotonic()
        self._said_stopped, self._looked_for_ring = False, not may_ask

    def look(self) -> None:
        """Warns of what it finds, through `logging`, as `launchpad.courier`."""
        waited_s = time.monotonic() - self._began
        if waited_s > STOPPED_AFTER_S and not self._said_stopped:
            self._look_for_a_stop()
        if waited_s > RING_AFTER_S and not self._looked_for_ring:
            self._look_for_a_ring()

    def _look_for_a_stop(self) -> None:
        pid = is_stopped(self._peer.welcome)
        if pid:
            self._said_stopped = True
            warn(
                f"{self._peer} does not answer {self._method!r}: its process {pid} is stopped (by SIGSTOP, "
                f"Ctrl-Z or a debugger). `kill -CONT {pid}` lets it go on."
            )

    def _look_for_a_ring(self) -> None:
        from launchpad.courier.clients import rings

        self._looked_for_ring = rings.look(self._peer)


def is_stopped(welcome: greeting.Welcome | None) -> int:
    """The server's process id if it is stopped; 0 if it is not, or runs on another machine."""
    if welcome is None or welcome.boot_id != greeting.boot_id() or not welcome.pid:
        return 0
    try:
        status = Path(f"/proc/{welcome.pid}/stat").read_text()
    except OSError:
        return 0
    state = status.rpartition(")")[2].split()[0]  # a program's name may contain anything
    return welcome.pid if state in "Tt" else 0
