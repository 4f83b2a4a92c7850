"""Detection of peers that vanish while data is on its way to them.

TCP repeats unacknowledged data for a quarter of an hour, and doesn't probe the peer during that time. The
kernel's own limit, TCP_USER_TIMEOUT, doesn't help: it also ends connections to a peer that is alive but
doesn't read, for example because its method holds the GIL. So a thread reads the kernel's counters twice a
second, for as long as there are connections to other hosts. A peer counts as vanished when its kernel has
acknowledged nothing for `SILENT_MS`, although our kernel has asked at least twice since, or wanted to. The
thread then cuts the connection, and threads that read or write get an error.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
import weakref
from typing import NamedTuple

from launchpad.courier.periodic_checks import PeriodicChecks

SILENT_MS = 2400
_UNANSWERED = 2  # probes and repeats without an answer; a single one may get lost

_TCP_INFO = struct.Struct("@5B3x24I")  # the first part of the kernel's `struct tcp_info`


class Info(NamedTuple):
    """The fields of the kernel's `struct tcp_info` that show whether the peer answers."""

    probes: int  # probes of a closed window or a silent peer, since the last acknowledgement
    last_ack_ms: int  # time since the last acknowledgement
    repeats: int  # segments that were sent again so far
    timeouts: int  # acknowledgements that were overdue, since one that acknowledged anything new


class PeerSilence:
    """The silence of one socket's peer: how long it has acknowledged nothing."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = weakref.ref(sock)
        self._checked_at = time.monotonic()
        # Repeats and timeouts up to these numbers came before the last acknowledgement.
        self._repeats = 0
        self._timeouts = 0

    def check(self, now: float) -> bool:
        """Cut the connection if the peer has vanished. Return False once the socket is closed."""
        sock = self._sock()
        if sock is None or sock.fileno() < 0:
            return False
        with contextlib.suppress(OSError):  # the socket is closed
            data = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
            _, _, timeouts, probes, _, *counters = _TCP_INFO.unpack(data)
            info = Info(probes, counters[12], counters[23], timeouts)
            if self.is_dead(info, (now - self._checked_at) * 1e3):
                cut(sock)
        self._checked_at = now
        return True

    def is_dead(self, info: Info, since_last_check_ms: float) -> bool:
        if info.last_ack_ms <= since_last_check_ms:
            self._repeats = info.repeats
            # Only an acknowledgement of something new sets this counter to 0 again.
            self._timeouts = info.timeouts
        unanswered = info.repeats - self._repeats + info.probes
        # If this host's own cable is out, the kernel has forgotten the peer's hardware address, and keeps the
        # first segment until it knows that again. It repeats no segment that it still keeps.
        unanswered = max(unanswered, info.timeouts - self._timeouts)
        return info.last_ack_ms >= SILENT_MS and unanswered >= _UNANSWERED


def cut(sock: socket.socket) -> None:
    """End the connection, and all reads and writes in progress. The kernel drops unacknowledged data."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("@ii", 1, 0))
    sock.shutdown(socket.SHUT_RDWR)


_checks = PeriodicChecks("courier-peer-liveness", 0.5)


def watch(sock: socket.socket) -> None:
    """Watch `sock` until it is closed, and cut the connection if the peer vanishes. Linux only."""
    _checks.add(PeerSilence(sock).check)
